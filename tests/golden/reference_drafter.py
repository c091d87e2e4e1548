"""A second, independent reading of the DFlash drafter: NumPy in float64, with deliberate mistakes (traps) to choose.

See reference_target.py for why. The drafter fuses the target's tapped layers into one context row a position, every
layer projects keys and values from those rows and from its own block, and one pass predicts a whole block.

    python reference_drafter.py drafter/*        # prints the table trap x checkpoint
"""

import argparse
import json
import pathlib

import numpy as np

import checkpoint
from reference_target import argmax_margin, relative_error, rms_norm, rotate, silu, softmax

TRAPS = {
    "mask_in_slot_0": "slot 0 holds the mask token in place of the last committed token",
    "zero_mask_embedding": "the mask token's embedding taken as zero",
    "context_normed_again": "context rows passed through each layer's input_layernorm",
    "hidden_norm_missing": "context rows not normalised after fc",
    "rope_interleaved": "rotary pairs (2i, 2i + 1) in place of (i, i + d/2)",
    "full_layers_causal": "block queries of full-attention layers see no later block position",
    "sliding_causality_flipped": "sliding layers causal where they are not, or the reverse",
    "window_ignored": "sliding layers see the whole context",
    "window_one_wider": "sliding layers see one position more",
    "qk_norm_missing": "no q_norm and k_norm",
    "gqa_interleaved": "query head h reads key head h modulo their number",
    "label_shift": "slot j taken as the prediction of position start + j + 1",
    "block_position_off_by_one": "block positions start at start + 1",
    "context_not_grown": "round 1 without the rows committed since round 0",
    "block_kv_kept": "round 1 still sees the block keys of round 0",
    "yarn_ignored": "plain rotary frequencies",
    "mscale_squared": "softmax scale with the target's YaRN factor squared",
    "attention_factor_forced": "cos and sin times 0.1 ln(factor) + 1 whatever the mscale keys say",
    "attention_factor_missing": "cos and sin never scaled",
    "final_norm_missing": "lm_head on the residual stream",
}


def layer_is_sliding(config, layer):
    types = config.get("layer_types")
    return bool(types) and types[layer] == "sliding_attention"


def layer_is_causal(config, layer):
    """Explicit keys win; without them a sliding layer is causal within the block and a full layer is not."""
    for value in (config.get("is_causal"), config["dflash_config"].get("causal")):
        if value is not None:
            return value
    return layer_is_sliding(config, layer)


def visible(config, layer, query_positions, key_positions, trap=None):
    """Boolean [queries, keys] by absolute positions; context and block follow one rule."""
    sliding, causal = layer_is_sliding(config, layer), layer_is_causal(config, layer)
    if (sliding and trap == "sliding_causality_flipped") or (not sliding and trap == "full_layers_causal"):
        causal = not causal
    distance = query_positions[:, None] - key_positions[None, :]
    seen = np.ones(distance.shape, bool)
    if causal:
        seen &= distance >= 0
    if sliding and trap != "window_ignored":
        window = config["sliding_window"] + (trap == "window_one_wider")
        seen &= (distance < window) & (-distance < window)
    return seen


class Drafter:
    def __init__(self, directory, embed, lm_head, trap=None):
        if trap is not None and trap not in TRAPS:
            raise ValueError(f"unknown trap {trap!r}")
        self.config, self.trap = json.loads((pathlib.Path(directory) / "config.json").read_text()), trap
        self.weights = checkpoint.as_float64(checkpoint.load_tensors(directory))
        self.embed, self.lm_head, self.eps = embed, lm_head, self.config["rms_norm_eps"]
        self.block, self.mask = self.config["block_size"], self.config["dflash_config"]["mask_token_id"]
        self.theta, scaling = checkpoint.rope_settings(self.config)
        self.rope_factor = checkpoint.yarn_attention_factor(scaling)
        if trap == "attention_factor_missing":
            self.rope_factor = 1.0
        if scaling and trap == "attention_factor_forced":
            self.rope_factor = checkpoint.yarn_magnitude(scaling["factor"], 1.0)
        self.scale = self.config["head_dim"] ** -0.5
        if scaling and trap == "mscale_squared":
            self.scale *= checkpoint.yarn_magnitude(scaling["factor"], 1.0) ** 2
        self.scaling = None if trap == "yarn_ignored" else scaling
        self.kept_block = None  # only for a trap: (positions, keys and values by layer) of the round before

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T

    def norm(self, x, name):
        return rms_norm(x, self.weights[name + ".weight"], self.eps)

    def context(self, taps):
        fused = self.linear(taps, "fc")
        return fused if self.trap == "hidden_norm_missing" else self.norm(fused, "hidden_norm")

    def heads(self, x, positions, name, norm_name):
        """-> [heads, tokens, head_dim], normalised by head and rotated."""
        y = self.linear(x, name).reshape(len(x), -1, self.config["head_dim"])
        if self.trap != "qk_norm_missing":
            y = self.norm(y, norm_name)
        angle = positions[:, None] * checkpoint.yarn_frequencies(y.shape[-1], self.theta, self.scaling)
        cos, sin = np.cos(angle) * self.rope_factor, np.sin(angle) * self.rope_factor
        return rotate(y.transpose(1, 0, 2), cos, sin, half_split=self.trap != "rope_interleaved")

    def attention(self, layer, context, x, context_positions, block_positions):
        c, p = self.config, f"layers.{layer}.self_attn."
        rows = np.concatenate((context, x))
        positions = np.concatenate((context_positions, block_positions))
        q = self.heads(x, block_positions, p + "q_proj", p + "q_norm")
        k = self.heads(rows, positions, p + "k_proj", p + "k_norm")
        v = self.linear(rows, p + "v_proj").reshape(len(rows), -1, c["head_dim"]).transpose(1, 0, 2)
        block_k, block_v = k[:, len(context):], v[:, len(context):]
        if self.trap == "block_kv_kept" and self.kept_block is not None:
            old_positions, old = self.kept_block
            positions = np.concatenate((old_positions, positions))
            k, v = np.concatenate((old[layer][0], k), 1), np.concatenate((old[layer][1], v), 1)
        repeat = c["num_attention_heads"] // c["num_key_value_heads"]
        order = np.arange(c["num_attention_heads"])
        order = order % c["num_key_value_heads"] if self.trap == "gqa_interleaved" else order // repeat
        scores = q @ k[order].transpose(0, 2, 1) * self.scale
        seen = visible(c, layer, block_positions, positions, self.trap)
        out = softmax(np.where(seen, scores, -np.inf)) @ v[order]
        return self.linear(out.transpose(1, 0, 2).reshape(len(x), -1), p + "o_proj"), (block_k, block_v)

    def round(self, context, bonus, start):
        """One block: context rows of positions 0 .. len - 1, the token at position start. -> residual stream after
        each layer, hidden rows after the final norm, log-probabilities of positions start + 1 ..."""
        mask = np.zeros_like(self.embed[0]) if self.trap == "zero_mask_embedding" else self.embed[self.mask]
        x = np.repeat(mask[None], self.block, 0)
        if self.trap != "mask_in_slot_0":
            x[0] = self.embed[bonus]
        block_positions = start + np.arange(self.block) + (self.trap == "block_position_off_by_one")
        stream, block_kv = [], []
        for i in range(self.config["num_hidden_layers"]):
            p = f"layers.{i}."
            rows = self.norm(context, p + "input_layernorm") if self.trap == "context_normed_again" else context
            y, kv = self.attention(i, rows, self.norm(x, p + "input_layernorm"), np.arange(len(context)),
                                   block_positions)
            x = x + y
            y = self.norm(x, p + "post_attention_layernorm")
            x = x + self.linear(silu(self.linear(y, p + "mlp.gate_proj")) * self.linear(y, p + "mlp.up_proj"),
                                p + "mlp.down_proj")
            stream.append(x)
            block_kv.append(kv)
        self.kept_block = block_positions, block_kv
        hidden = x if self.trap == "final_norm_missing" else self.norm(x, "norm")
        logits = (hidden[:-1] if self.trap == "label_shift" else hidden[1:]) @ self.lm_head.T
        return np.stack(stream), hidden, np.log(softmax(logits))

    def rounds(self, taps, bonus, start):
        """Consecutive rounds over a growing context. -> the tensors of golden.safetensors that a drafter computes."""
        context = self.context(taps)
        lengths = [start[0]] * len(start) if self.trap == "context_not_grown" else start
        results = [self.round(context[:n], b, s) for n, b, s in zip(lengths, bonus, start)]
        names = ("layer_hidden", "block_hidden", "log_probs")
        return {"ctx": context} | {name: np.stack(parts) for name, parts in zip(names, zip(*results))}


def run(directory, golden, trap=None):
    drafter = Drafter(directory, golden["embed"], golden["lm_head"], trap)
    return drafter.rounds(golden["taps"], golden["bonus"].astype(int), golden["start"].astype(int))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", type=pathlib.Path, help="checkpoints with a golden.safetensors")
    directories = parser.parse_args().directories
    goldens = [checkpoint.as_float64(checkpoint.safetensors.torch.load_file(d / "golden.safetensors"))
               for d in directories]

    def row(label, cells):
        print(f"| {label} | " + " | ".join(cells) + " |")

    row("log_probs error", [d.name for d in directories])
    row("---", ["---"] * len(directories))
    results = [run(d, g) for d, g in zip(directories, goldens)]
    for name in ("log_probs", "block_hidden", "layer_hidden", "ctx"):
        row(f"{name}, **none**", [f"{relative_error(r[name], g[name]):.1e}" for r, g in zip(results, goldens)])
    row("argmax margin", [f"{min(argmax_margin(lp) for lp in g['log_probs']):.1e}" for g in goldens])
    undetected = []
    for trap in TRAPS:
        errors = [relative_error(run(d, g, trap)["log_probs"], g["log_probs"]) for d, g in zip(directories, goldens)]
        row(trap, ["-" if e < 1e-5 else f"**{e:.1e}**" if e > 1e-3 else f"{e:.1e}" for e in errors])
        if max(errors) <= 1e-3:
            undetected.append(trap)
    if undetected:
        raise SystemExit(f"no checkpoint shows {undetected}")


if __name__ == "__main__":
    main()
