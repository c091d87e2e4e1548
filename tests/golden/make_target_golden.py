"""Runs a target checkpoint in Hugging Face transformers and writes golden.safetensors.

    python make_target_golden.py --checkpoint DIR --out DIR [--tokens 40] [--seed 0 | --token-ids 1,2,3]

float32 arithmetic on the stored weights, eager attention, eager experts, the whole sequence in one pass.
"""

import argparse
import pathlib
import tempfile

import torch
import transformers

import checkpoint


def load(directory):
    """The model in float32. Wrapped checkpoints are unwrapped: only the language model is loaded."""
    config = dict(checkpoint.text_config(directory))
    if "quantization_config" in config:
        raise ValueError("quantized checkpoints are not covered: dequantize first")
    config["model_type"] = {"kimi_k2": "deepseek_v3"}.get(config["model_type"], config["model_type"])
    classes = {
        "deepseek_v3": (transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM),
        "deepseek_v2": (transformers.DeepseekV2Config, transformers.DeepseekV2ForCausalLM),
    }
    config_class, model_class = classes[config["model_type"]]
    with tempfile.TemporaryDirectory() as plain:
        checkpoint.save_config(plain, config)
        checkpoint.save_tensors(pathlib.Path(plain) / "model.safetensors", checkpoint.language_tensors(directory))
        model, report = model_class.from_pretrained(
            plain, config=config_class.from_pretrained(plain), dtype=torch.float32, attn_implementation="eager",
            experts_implementation="eager", output_loading_info=True)
    problems = {k: v for k, v in report.items() if v and k != "error_msgs"}
    if problems:
        raise ValueError(f"the checkpoint does not fit the model: {problems}")
    return model.eval()


@torch.no_grad()
def run(model, token_ids):
    """-> the tensors of golden.safetensors. Hooks are used since the last of transformers' hidden_states is normed."""
    kept = []
    hooks = [model.model.embed_tokens.register_forward_hook(lambda m, i, out: kept.append(out[0]))]
    hooks += [layer.register_forward_hook(lambda m, i, out: kept.append((out if torch.is_tensor(out) else out[0])[0]))
              for layer in model.model.layers]
    logits = model(input_ids=token_ids[None].long(), use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return {"token_ids": token_ids.to(torch.int32), "logits": logits.float(), "hidden": torch.stack(kept).float()}


def random_tokens(vocabulary, count, seed):
    return torch.randint(0, vocabulary, (count,), generator=torch.Generator().manual_seed(seed))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--token-ids", help="comma-separated, in place of random ones")
    arguments = parser.parse_args()
    model = load(arguments.checkpoint)
    if arguments.token_ids:
        tokens = torch.tensor([int(t) for t in arguments.token_ids.split(",")])
    else:
        tokens = random_tokens(model.config.vocab_size, arguments.tokens, arguments.seed)
    arguments.out.mkdir(parents=True, exist_ok=True)
    checkpoint.save_tensors(arguments.out / "golden.safetensors", run(model, tokens))


if __name__ == "__main__":
    main()
