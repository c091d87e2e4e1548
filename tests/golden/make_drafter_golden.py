"""Writes the random DFlash drafters and their goldens.

    python make_drafter_golden.py --out drafter [name ...]

transformers has no DFlash model, so the golden run puts one together from transformers' Qwen3 parts (norms, rotary
embedding, rotation, grouped attention, MLP) in float32; reference_drafter.py must agree.
"""

import argparse
import pathlib

import torch
import transformers
from transformers.models.qwen3 import modeling_qwen3 as qwen3

import checkpoint
import reference_drafter
import reference_target

BASE = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "vocab_size": 96, "hidden_size": 32,
    "num_hidden_layers": 2, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-5, "attention_bias": False, "attention_dropout": 0.0,
    "rope_theta": 50000.0, "rope_scaling": None, "max_position_embeddings": 4096,
    "layer_types": ["full_attention", "full_attention"], "sliding_window": None, "use_sliding_window": False,
    "tie_word_embeddings": False, "block_size": 8, "num_target_layers": 7,
    "dflash_config": {"mask_token_id": 93, "target_layer_ids": [1, 2, 4]}, "torch_dtype": "bfloat16",
}
YARN = {"type": "yarn", "factor": 64.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096}
WINDOW = {"sliding_window": 16, "use_sliding_window": True}

# name -> config, positions of the last committed token at the two rounds
CHECKPOINTS = {
    "full": (BASE, (24, 29)),
    # Sliding layers without an explicit key are causal within the block.
    "sliding": (BASE | WINDOW | {"num_hidden_layers": 3, "layer_types": [
        "sliding_attention", "full_attention", "sliding_attention"]}, (60, 65)),
    "sliding_bidirectional": (BASE | WINDOW | {"is_causal": False, "layer_types": [
        "sliding_attention", "sliding_attention"]}, (60, 61)),
    # Both mscale keys equal: cos and sin are left as they are, as in Kimi-K2.6-DFlash.
    "yarn": (BASE | {"max_position_embeddings": 262144,
                     "rope_scaling": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}, (40, 48)),
    # No mscale keys: cos and sin are multiplied by 0.1 ln(factor) + 1.
    "yarn_attention_factor": (BASE | {"max_position_embeddings": 262144, "rope_theta": None, "rope_scaling": None,
                                      "rope_parameters": YARN | {"rope_type": "yarn", "rope_theta": 50000.0}},
                              (24, 27)),
}


def draw(config, seed):
    c, generator, tensors = config, torch.Generator().manual_seed(seed), {}

    def matrix(name, rows, columns, gain=1.0):
        tensors[name + ".weight"] = (torch.randn(rows, columns, generator=generator) * gain * columns ** -0.5).to(
            torch.bfloat16)

    def norm(name, size, mean=1.0):
        tensors[name + ".weight"] = (mean + 0.3 * torch.randn(size, generator=generator)).to(torch.bfloat16)

    h, d, inner = c["hidden_size"], c["head_dim"], c["intermediate_size"]
    matrix("fc", h, len(c["dflash_config"]["target_layer_ids"]) * h)
    norm("hidden_norm", h)
    norm("norm", h)
    for i in range(c["num_hidden_layers"]):
        p, a = f"layers.{i}.", f"layers.{i}.self_attn."
        norm(p + "input_layernorm", h)
        norm(p + "post_attention_layernorm", h)
        norm(a + "q_norm", d, 1.5)
        norm(a + "k_norm", d, 1.5)
        matrix(a + "q_proj", c["num_attention_heads"] * d, h)
        matrix(a + "k_proj", c["num_key_value_heads"] * d, h)
        matrix(a + "v_proj", c["num_key_value_heads"] * d, h, 1.5)
        matrix(a + "o_proj", h, c["num_attention_heads"] * d, 1.5)
        matrix(p + "mlp.gate_proj", inner, h, 1.6)
        matrix(p + "mlp.up_proj", inner, h, 1.6)
        matrix(p + "mlp.down_proj", h, inner)
    return tensors


def inputs(config, start, seed):
    """Stand-ins for what the target gives: two of its matrices, tapped layer outputs, committed tokens."""
    c, generator = config, torch.Generator().manual_seed(seed)
    h, vocabulary, taps = c["hidden_size"], c["vocab_size"], len(c["dflash_config"]["target_layer_ids"])
    # Residual streams grow with depth, so each tap has a size of its own.
    sizes = torch.arange(1, taps + 1).repeat_interleave(h)
    return {
        "embed": torch.randn(vocabulary, h, generator=generator).to(torch.bfloat16),
        "lm_head": (torch.randn(vocabulary, h, generator=generator) * 2 * h ** -0.5).to(torch.bfloat16),
        "taps": torch.randn(start[-1], taps * h, generator=generator) * sizes,
        "bonus": torch.randint(0, 90, (len(start),), generator=generator).to(torch.int32),
        "start": torch.tensor(start, dtype=torch.int32),
    }


class Drafter:
    """A DFlash drafter out of transformers' Qwen3 parts."""

    def __init__(self, directory):
        config = checkpoint.text_config(directory)
        self.raw, self.c = config, transformers.Qwen3Config.from_pretrained(directory)
        self.weights = {k: v.float() for k, v in checkpoint.load_tensors(directory).items()}
        self.rotary = qwen3.Qwen3RotaryEmbedding(self.c)
        self.num_key_value_groups = self.c.num_attention_heads // self.c.num_key_value_heads
        self.training = False  # these two are what eager_attention_forward reads of a module

    def linear(self, x, name):
        return torch.nn.functional.linear(x, self.weights[name + ".weight"])

    def norm(self, x, name):
        module = qwen3.Qwen3RMSNorm(x.shape[-1], self.c.rms_norm_eps)
        module.weight.data = self.weights[name + ".weight"]
        return module(x)

    def mlp(self, x, prefix):
        module = qwen3.Qwen3MLP(self.c)
        for name, child in module.named_children():
            if hasattr(child, "weight"):
                child.weight.data = self.weights[f"{prefix}{name}.weight"]
        return module(x)

    def heads(self, x, name, norm_name=None):
        y = self.linear(x, name).view(1, x.shape[1], -1, self.c.head_dim)
        return (self.norm(y, norm_name) if norm_name else y).transpose(1, 2)

    @torch.no_grad()
    def round(self, context, embed, lm_head, bonus, start):
        c, count = self.c, len(context)
        ids = torch.full((1, c.block_size), c.dflash_config["mask_token_id"])
        ids[0, 0] = bonus
        x, context = embed.float()[ids], context[None]
        positions = torch.cat((torch.arange(count), start + torch.arange(c.block_size)))
        cos, sin = self.rotary(x, positions[None])
        stream = []
        for i in range(c.num_hidden_layers):
            a = f"layers.{i}.self_attn."
            block = self.norm(x, f"layers.{i}.input_layernorm")
            rows = torch.cat((context, block), 1)
            q = self.heads(block, a + "q_proj", a + "q_norm")
            k = self.heads(rows, a + "k_proj", a + "k_norm")
            q, _ = qwen3.apply_rotary_pos_emb(q, q, cos[:, count:], sin[:, count:])
            k, _ = qwen3.apply_rotary_pos_emb(k, k, cos, sin)
            seen = torch.from_numpy(reference_drafter.visible(
                self.raw, i, positions[count:].numpy(), positions.numpy()))
            mask = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)[None, None]
            out, _ = qwen3.eager_attention_forward(
                self, q, k, self.heads(rows, a + "v_proj"), mask, scaling=c.head_dim ** -0.5)
            x = x + self.linear(out.reshape(1, c.block_size, -1), a + "o_proj")
            x = x + self.mlp(self.norm(x, f"layers.{i}.post_attention_layernorm"), f"layers.{i}.mlp.")
            stream.append(x[0])
        hidden = self.norm(x, "norm")[0]
        log_probs = torch.nn.functional.linear(hidden[1:], lm_head.float()).log_softmax(-1)
        return torch.stack(stream), hidden, log_probs

    @torch.no_grad()
    def rounds(self, given):
        context = self.norm(self.linear(given["taps"], "fc"), "hidden_norm")
        results = [self.round(context[:start], given["embed"], given["lm_head"], bonus, start)
                   for bonus, start in zip(given["bonus"].tolist(), given["start"].tolist())]
        names = ("layer_hidden", "block_hidden", "log_probs")
        return given | {"ctx": context} | {name: torch.stack(parts) for name, parts in zip(names, zip(*results))}


def make(name, out):
    config, start = CHECKPOINTS[name]
    directory = out / name
    checkpoint.save_config(directory, {k: v for k, v in config.items() if k != "rope_theta" or v is not None})
    checkpoint.save_tensors(directory / "model.safetensors", draw(config, 101 + list(CHECKPOINTS).index(name)))
    for seed in range(1000):
        golden = Drafter(directory).rounds(inputs(config, start, seed))
        if min(reference_target.argmax_margin(lp.numpy()) for lp in golden["log_probs"]) >= 1e-3:
            break
    else:
        raise SystemExit(f"{name}: every seed comes near a tie")
    other = reference_drafter.run(directory, checkpoint.as_float64(golden))
    error = max(reference_target.relative_error(golden[key].numpy(), other[key]) for key in other)
    print(f"{name}: seed {seed}, transformers' parts against the reference {error:.1e}")
    if not error < 1e-5:
        raise SystemExit(f"{name}: the two readings disagree")
    checkpoint.save_tensors(directory / "golden.safetensors", golden)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="all when none is given")
    arguments = parser.parse_args()
    for name in arguments.names or CHECKPOINTS:
        make(name, arguments.out)


if __name__ == "__main__":
    main()
