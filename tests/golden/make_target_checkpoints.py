"""Writes the random target checkpoints and, through make_target_golden.py, their goldens.

    python make_target_checkpoints.py --out target [name ...]

Weight scales are chosen so that every trap of reference_target.py moves the logits of some checkpoint by far more
than rounding does; the token seed is the first one that keeps routing and argmax away from ties.
"""

import argparse
import json
import pathlib

import torch

import checkpoint
import make_target_golden
import reference_target

BASE = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 256, "hidden_size": 64,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 32,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "intermediate_size": 48,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_routed_experts": 8, "num_experts_per_tok": 3,
    "n_shared_experts": 1, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc",
    "scoring_func": "sigmoid", "norm_topk_prob": True, "routed_scaling_factor": 2.5, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": False,
    "rope_theta": 10000.0, "rope_scaling": None, "max_position_embeddings": 163840, "num_nextn_predict_layers": 0,
    "initializer_range": 0.02, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16",
}

# Standard deviations of what a matrix makes of a unit input, and how the small vectors are drawn.
SCALES = {
    "embed": 1.0, "q_a": 1.0, "q": 1.4, "latent": 1.0, "k_pe": 1.4, "kv_b": 1.4, "o": 1.0, "mlp": 1.6, "router": 1.5,
    "head": 2.0, "norm_spread": 0.3, "bias_mean": 0.0, "bias_spread": 0.25,
}


def yarn(factor, beta_fast=32.0, beta_slow=1.0, mscale=1.0, original=4096, **spelling):
    return {"type": "yarn", "factor": factor, "beta_fast": beta_fast, "beta_slow": beta_slow, "mscale": mscale,
            "mscale_all_dim": mscale, "original_max_position_embeddings": original} | spelling


KIMI = {"model_type": "kimi_k2", "max_position_embeddings": 262144, "rope_theta": 50000.0,
        "routed_scaling_factor": 2.827}
V2 = {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "scoring_func": "softmax",
      "topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.0}

# name -> config, scales, number of tokens
CHECKPOINTS = {
    # Latents and residual stream are so small that 1e-6 and 1e-5 under a square root are far apart.
    "kimi_small_latents": (
        BASE | KIMI | {"rms_norm_eps": 1e-5, "rope_scaling": yarn(64.0), "moe_intermediate_size": 12},
        {"embed": 0.004, "q_a": 0.003, "latent": 0.003}, 40),
    # Positions past 64 and 128 matter; with equal betas the YaRN ramp is a step.
    "kimi_step_ramp": (
        BASE | KIMI | {"num_hidden_layers": 2, "vocab_size": 128, "hidden_size": 48,
                       "max_position_embeddings": 8192,
                       "rope_scaling": yarn(32.0, 1.0, 1.0, original=256)}, {}, 200),
    # DeepSeek-V3: groups; biases so low that some choices of kept groups are negative.
    "v3_groups": (
        BASE | {"hidden_size": 48, "n_routed_experts": 24, "num_experts_per_tok": 6, "n_group": 8, "topk_group": 4,
                "moe_intermediate_size": 8, "rope_scaling": None,
                "rope_parameters": yarn(40.0, rope_theta=10000.0, rope_type="yarn")},
        {"bias_mean": -0.65, "bias_spread": 0.3}, 40),
    # DeepSeek-V2-Lite: no q_lora, four different head sizes, vocabulary and ranks of no round number.
    "v2_lite": (
        BASE | V2 | {"q_lora_rank": None, "kv_lora_rank": 40, "qk_nope_head_dim": 24, "v_head_dim": 20,
                     "n_shared_experts": 2, "n_routed_experts": 10, "vocab_size": 250, "moe_intermediate_size": 8,
                     "hidden_size": 48, "rope_scaling": yarn(40.0, mscale=0.707)}, {"router": 1.0}, 40),
    # DeepSeek-V2: group-limited greedy, no dense layer at all, a large scaling factor.
    "v2_groups": (
        BASE | V2 | {"topk_method": "group_limited_greedy", "n_routed_experts": 16, "n_group": 4, "topk_group": 2,
                     "routed_scaling_factor": 16.0, "first_k_dense_replace": 0, "num_hidden_layers": 2,
                     "moe_intermediate_size": 8, "rope_scaling": yarn(40.0, mscale=0.707)}, {"router": 1.0}, 40),
    # One matrix for both ends of the model; plain rotary frequencies; two dense layers.
    "tied": (
        BASE | {"tie_word_embeddings": True, "first_k_dense_replace": 2, "num_attention_heads": 8,
                "num_key_value_heads": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8},
        {"embed": 0.3}, 40),
    # Kimi-K2.5's wrapper: text_config, language_model. prefix, two shards, tensors that are not ours.
    "kimi_wrapped": (
        BASE | KIMI | {"rms_norm_eps": 1e-5, "rope_scaling": yarn(64.0), "num_hidden_layers": 2,
                       "moe_intermediate_size": 8}, {}, 40),
}


def draw(config, scales, seed):
    """Random tensors under their names in a checkpoint: matrices and norms in bfloat16, the router bias in float32."""
    c, s, generator, tensors = config, SCALES | scales, torch.Generator().manual_seed(seed), {}

    def matrix(name, rows, columns, gain):
        value = torch.randn(rows, columns, generator=generator) * gain * columns ** -0.5
        tensors[name + ".weight"] = value.to(torch.bfloat16)

    def norm(name, size):
        value = 1 + s["norm_spread"] * torch.randn(size, generator=generator)
        tensors[name + ".weight"] = value.to(torch.bfloat16)

    def mlp(name, inner):
        matrix(name + "gate_proj", inner, c["hidden_size"], s["mlp"])
        matrix(name + "up_proj", inner, c["hidden_size"], s["mlp"])
        matrix(name + "down_proj", c["hidden_size"], inner, s["mlp"])

    h, heads, q_dim = c["hidden_size"], c["num_attention_heads"], c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    matrix("model.embed_tokens", c["vocab_size"], h, s["embed"] * h ** 0.5)
    for i in range(c["num_hidden_layers"]):
        p, a = f"model.layers.{i}.", f"model.layers.{i}.self_attn."
        norm(p + "input_layernorm", h)
        norm(p + "post_attention_layernorm", h)
        if c["q_lora_rank"]:
            matrix(a + "q_a_proj", c["q_lora_rank"], h, s["q_a"])
            norm(a + "q_a_layernorm", c["q_lora_rank"])
            matrix(a + "q_b_proj", heads * q_dim, c["q_lora_rank"], s["q"])
        else:
            matrix(a + "q_proj", heads * q_dim, h, s["q"])
        matrix(a + "kv_a_proj_with_mqa", c["kv_lora_rank"] + c["qk_rope_head_dim"], h, 1.0)
        rows = tensors[a + "kv_a_proj_with_mqa.weight"].float()
        rows[:c["kv_lora_rank"]] *= s["latent"]
        rows[c["kv_lora_rank"]:] *= s["k_pe"]
        tensors[a + "kv_a_proj_with_mqa.weight"] = rows.to(torch.bfloat16)
        norm(a + "kv_a_layernorm", c["kv_lora_rank"])
        matrix(a + "kv_b_proj", heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), c["kv_lora_rank"], s["kv_b"])
        matrix(a + "o_proj", h, heads * c["v_head_dim"], s["o"])
        if i < c["first_k_dense_replace"]:
            mlp(p + "mlp.", c["intermediate_size"])
            continue
        matrix(p + "mlp.gate", c["n_routed_experts"], h, s["router"])
        if c["scoring_func"] == "sigmoid":
            tensors[p + "mlp.gate.e_score_correction_bias"] = (
                s["bias_mean"] + s["bias_spread"] * torch.randn(c["n_routed_experts"], generator=generator))
        for e in range(c["n_routed_experts"]):
            mlp(f"{p}mlp.experts.{e}.", c["moe_intermediate_size"])
        mlp(p + "mlp.shared_experts.", c["moe_intermediate_size"] * c["n_shared_experts"])
    norm("model.norm", h)
    if not c["tie_word_embeddings"]:
        matrix("lm_head", c["vocab_size"], h, s["head"])
    return tensors


def save_wrapped(directory, config, tensors):
    """As Kimi-K2.5 is published: a multimodal config, prefixed names, shards with an index, foreign tensors."""
    checkpoint.save_config(directory, {
        "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "text_config": config,
        "vision_config": {"hidden_size": 8, "num_hidden_layers": 1}, "tie_word_embeddings": False,
        "bos_token_id": config["bos_token_id"], "eos_token_id": config["eos_token_id"], "dtype": "bfloat16"})
    named = {"language_model." + name: tensor for name, tensor in tensors.items()}
    nan = float("nan")  # A loader that uses one of these by mistake shows it at once.
    for i in range(config["num_hidden_layers"]):
        named[f"language_model.model.layers.{i}.self_attn.rotary_emb.inv_freq"] = torch.full((8,), nan)
    named["vision_tower.patch_embed.proj.weight"] = torch.full((8, 4), nan, dtype=torch.bfloat16)
    named["vision_tower.encoder.blocks.0.norm0.weight"] = torch.full((8,), nan, dtype=torch.bfloat16)
    named["mm_projector.linear_1.weight"] = torch.full((8, 8), nan, dtype=torch.bfloat16)
    # Alternate tensors go to alternate files, so that every layer is spread over both.
    files = ["model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors"]
    index = {name: files[i % 2] for i, name in enumerate(sorted(named))}
    for file in files:
        checkpoint.save_tensors(directory / file, {n: t for n, t in named.items() if index[n] == file})
    size = sum(t.numel() * t.element_size() for t in named.values())
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": size}, "weight_map": index}, indent=1) + "\n")


def make(name, out):
    config, scales, count = CHECKPOINTS[name]
    directory = out / name
    directory.mkdir(parents=True, exist_ok=True)
    tensors = draw(config, scales, seed=1 + list(CHECKPOINTS).index(name))
    if name == "kimi_wrapped":
        save_wrapped(directory, config, tensors)
    else:
        checkpoint.save_config(directory, config)
        checkpoint.save_tensors(directory / "model.safetensors", tensors)
    for seed in range(1000):
        tokens = make_target_golden.random_tokens(config["vocab_size"], count, seed)
        model = reference_target.Target(directory)
        logits, _ = model.forward(tokens.numpy())
        if model.smallest_routing_margin >= 1e-4 and reference_target.argmax_margin(logits) >= 1e-3:
            break
    else:
        raise SystemExit(f"{name}: every token seed comes near a tie")
    golden = make_target_golden.run(make_target_golden.load(directory), tokens)
    error = reference_target.relative_error(golden["logits"].numpy(), logits)
    print(f"{name}: token seed {seed}, transformers against the reference {error:.1e}")
    if not error < 1e-5:
        raise SystemExit(f"{name}: transformers and the reference disagree")
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
