"""A second, independent reading of the target model: NumPy in float64, a whole sequence at once, no cache.

It exists for two reasons. It must agree with the goldens, which come from Hugging Face transformers in float32, so
that neither is trusted alone. And it can be run with one deliberate mistake (a trap), which shows that the goldens
are sensitive to that mistake: a golden that cannot tell right from wrong proves nothing.

    python reference_target.py target/*          # prints the table trap x checkpoint
"""

import argparse
import pathlib

import numpy as np
import safetensors.numpy

import checkpoint

TRAPS = {
    "rope_half_split": "rotary pairs (i, i + d/2) in place of (2i, 2i + 1)",
    "yarn_ignored": "plain rotary frequencies",
    "yarn_beta_32_1": "beta_fast / beta_slow taken as 32 / 1",
    "mscale_missing": "softmax scale without the YaRN factor squared",
    "mscale_all_dim_one": "mscale_all_dim taken as 1",
    "latent_eps_from_config": "q_a / kv_a layernorm with rms_norm_eps in place of 1e-6",
    "layer_eps_1e_6": "all other norms with 1e-6 in place of rms_norm_eps",
    "k_pe_normed": "the rotary key normalised as the latent is",
    "bias_in_weights": "routing weights taken from sigmoid + correction bias",
    "bias_ignored": "experts selected without the correction bias",
    "scaling_missing": "no routed_scaling_factor",
    "norm_topk_ignored": "routing weights not normalised where norm_topk_prob is true",
    "norm_topk_forced": "routing weights normalised where norm_topk_prob is false",
    "groups_ignored": "top-k over all groups",
    "group_score_swapped": "group score: largest in place of the sum of the two largest, or the reverse",
    "masked_groups_zero": "experts of unselected groups get choice 0 in place of minus infinity",
    "shared_expert_missing": "no shared expert",
    "shared_expert_scaled": "the shared expert multiplied by routed_scaling_factor",
    "one_dense_layer_more": "first_k_dense_replace one too high (the shared expert taken as the dense MLP)",
    "head_tied": "logits from embed_tokens although tie_word_embeddings is false",
    "final_norm_missing": "logits from the residual stream",
}

LATENT_EPS = 1e-6  # transformers builds q_a_layernorm and kv_a_layernorm without the configured epsilon.


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rotate(x, cos, sin, half_split):
    """x [..., tokens, dim], cos and sin [tokens, dim / 2]."""
    if half_split:
        a, b = np.split(x, 2, -1)
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)
    a, b = x[..., 0::2], x[..., 1::2]
    return np.stack((a * cos - b * sin, b * cos + a * sin), -1).reshape(x.shape)


class Target:
    def __init__(self, directory, trap=None):
        if trap is not None and trap not in TRAPS:
            raise ValueError(f"unknown trap {trap!r}")
        self.config, self.trap = checkpoint.text_config(directory), trap
        self.weights = checkpoint.as_float64(checkpoint.language_tensors(directory))
        self.smallest_routing_margin = np.inf
        c = self.config
        self.theta, scaling = checkpoint.rope_settings(c)
        self.eps = LATENT_EPS if trap == "layer_eps_1e_6" else c["rms_norm_eps"]
        self.scale = (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]) ** -0.5
        if scaling and scaling.get("mscale_all_dim") and trap != "mscale_missing":
            mscale = 1.0 if trap == "mscale_all_dim_one" else scaling["mscale_all_dim"]
            self.scale *= checkpoint.yarn_magnitude(scaling["factor"], mscale) ** 2
        self.rope_factor = checkpoint.yarn_attention_factor(scaling)
        if scaling and trap == "yarn_beta_32_1":
            scaling = scaling | {"beta_fast": 32, "beta_slow": 1}
        self.scaling = None if trap == "yarn_ignored" else scaling

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T

    def norm(self, x, name, eps):
        return rms_norm(x, self.weights[name + ".weight"], eps)

    def attention(self, x, p):
        c, tokens = self.config, len(x)
        heads, nope, rope = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
        latent_eps = c["rms_norm_eps"] if self.trap == "latent_eps_from_config" else LATENT_EPS
        angle = np.arange(tokens)[:, None] * checkpoint.yarn_frequencies(rope, self.theta, self.scaling)
        cos, sin = np.cos(angle) * self.rope_factor, np.sin(angle) * self.rope_factor
        half = self.trap == "rope_half_split"

        if c.get("q_lora_rank"):
            q = self.linear(self.norm(self.linear(x, p + "q_a_proj"), p + "q_a_layernorm", latent_eps), p + "q_b_proj")
        else:
            q = self.linear(x, p + "q_proj")
        q = q.reshape(tokens, heads, nope + rope).transpose(1, 0, 2)
        q_nope, q_pe = q[..., :nope], rotate(q[..., nope:], cos, sin, half)

        latent, k_pe = np.split(self.linear(x, p + "kv_a_proj_with_mqa"), [c["kv_lora_rank"]], -1)
        latent = self.norm(latent, p + "kv_a_layernorm", latent_eps)
        if self.trap == "k_pe_normed":
            k_pe = rms_norm(k_pe, 1.0, latent_eps)
        k_pe = rotate(k_pe, cos, sin, half)
        kv = self.linear(latent, p + "kv_b_proj").reshape(tokens, heads, -1).transpose(1, 0, 2)
        k_nope, v = kv[..., :nope], kv[..., nope:]

        scores = (q_nope @ k_nope.transpose(0, 2, 1) + q_pe @ k_pe.T) * self.scale
        scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
        out = (softmax(scores) @ v).transpose(1, 0, 2).reshape(tokens, -1)
        return self.linear(out, p + "o_proj")

    def mlp(self, x, p):
        return self.linear(silu(self.linear(x, p + "gate_proj")) * self.linear(x, p + "up_proj"), p + "down_proj")

    def top(self, choice, k):
        """Indices of the k largest, and a note of how near the decision was."""
        order = np.argsort(-choice, -1, kind="stable")
        if k < choice.shape[-1]:
            ranked = np.take_along_axis(choice, order, -1)
            gap = ranked[:, k - 1] - ranked[:, k]
            self.smallest_routing_margin = min(self.smallest_routing_margin, gap.min())
        return order[:, :k]

    def route(self, x, p):
        """-> weights [tokens, experts], zero for experts not chosen."""
        c, experts, groups = self.config, self.config["n_routed_experts"], self.config.get("n_group") or 1
        logits = self.linear(x, p + "gate")
        sigmoid = c.get("scoring_func", "softmax") == "sigmoid"
        score = 1 / (1 + np.exp(-logits)) if sigmoid else softmax(logits)
        biased = score + self.weights[p + "gate.e_score_correction_bias"] if sigmoid else score
        choice = score if self.trap == "bias_ignored" else biased
        if c["topk_method"] != "greedy" and groups > 1 and self.trap != "groups_ignored":
            members = np.sort(choice.reshape(len(x), groups, -1), -1)
            top_two = (c["topk_method"] == "noaux_tc") != (self.trap == "group_score_swapped")
            kept = self.top(members[..., -2:].sum(-1) if top_two else members[..., -1], c["topk_group"])
            mask = np.zeros((len(x), groups), bool)
            np.put_along_axis(mask, kept, True, -1)
            masked = 0.0 if not sigmoid or self.trap == "masked_groups_zero" else -np.inf
            choice = np.where(np.repeat(mask, experts // groups, -1), choice, masked)
        picked = self.top(choice, c["num_experts_per_tok"])
        weight = np.take_along_axis(biased if self.trap == "bias_in_weights" else score, picked, -1)
        # DeepSeek-V2 in transformers drops norm_topk_prob; no published V2 checkpoint sets it.
        normed = c["norm_topk_prob"] and sigmoid and self.trap != "norm_topk_ignored"
        if normed or self.trap == "norm_topk_forced":
            weight = weight / (weight.sum(-1, keepdims=True) + 1e-20)
        if self.trap != "scaling_missing":
            weight = weight * c["routed_scaling_factor"]
        dense = np.zeros_like(score)
        np.put_along_axis(dense, picked, weight, -1)
        return dense

    def experts(self, x, p):
        c, weight, y = self.config, self.route(x, p), np.zeros_like(x)
        for e in range(c["n_routed_experts"]):
            y += weight[:, e:e + 1] * self.mlp(x, f"{p}experts.{e}.")
        if self.trap == "shared_expert_missing":
            return y
        factor = c["routed_scaling_factor"] if self.trap == "shared_expert_scaled" else 1.0
        return y + factor * self.mlp(x, p + "shared_experts.")

    def forward(self, token_ids):
        """-> logits [tokens, vocabulary], residual stream [layers + 1, tokens, hidden]"""
        c = self.config
        h = self.weights["model.embed_tokens.weight"][token_ids]
        hidden = [h]
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            h = h + self.attention(self.norm(h, p + "input_layernorm", self.eps), p + "self_attn.")
            x = self.norm(h, p + "post_attention_layernorm", self.eps)
            if i < c["first_k_dense_replace"]:
                h = h + self.mlp(x, p + "mlp.")
            elif i == c["first_k_dense_replace"] and self.trap == "one_dense_layer_more":
                h = h + self.mlp(x, p + "mlp.shared_experts.")
            else:
                h = h + self.experts(x, p + "mlp.")
            hidden.append(h)
        if self.trap != "final_norm_missing":
            h = self.norm(h, "model.norm", self.eps)
        tied = c["tie_word_embeddings"] or self.trap == "head_tied"
        return self.linear(h, "model.embed_tokens" if tied else "lm_head"), np.stack(hidden)


def relative_error(got, want):
    """Largest difference over the largest magnitude: the one measure used in this directory."""
    return float(np.abs(got - want).max() / np.abs(want).max())


def argmax_margin(logits):
    """Smallest gap between the best and the second best of a row, over the largest magnitude."""
    best = np.sort(logits, -1)[:, -2:]
    return float((best[:, 1] - best[:, 0]).min() / np.abs(logits).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", type=pathlib.Path, help="checkpoints with a golden.safetensors")
    directories = parser.parse_args().directories
    goldens = [safetensors.numpy.load_file(d / "golden.safetensors") for d in directories]

    def row(label, cells):
        print(f"| {label} | " + " | ".join(cells) + " |")

    row("logit error", [d.name for d in directories])
    row("---", ["---"] * len(directories))
    models = [Target(d) for d in directories]
    results = [m.forward(g["token_ids"]) for m, g in zip(models, goldens)]
    row("**none**", [f"{relative_error(r[0], g['logits']):.1e}" for r, g in zip(results, goldens)])
    row("hidden, none", [f"{relative_error(r[1], g['hidden']):.1e}" for r, g in zip(results, goldens)])
    row("routing margin", [f"{m.smallest_routing_margin:.1e}" for m in models])
    row("argmax margin", [f"{argmax_margin(g['logits']):.1e}" for g in goldens])
    undetected = []
    for trap in TRAPS:
        errors = [relative_error(Target(d, trap).forward(g["token_ids"])[0], g["logits"])
                  for d, g in zip(directories, goldens)]
        row(trap, ["-" if e < 1e-5 else f"**{e:.1e}**" if e > 1e-3 else f"{e:.1e}" for e in errors])
        if max(errors) <= 1e-3:
            undetected.append(trap)
    if undetected:
        raise SystemExit(f"no checkpoint shows {undetected}")


if __name__ == "__main__":
    main()
