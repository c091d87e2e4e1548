"""Reading and writing the checkpoints of this directory: config.json beside one or more safetensors files."""

import json
import math
import pathlib

import numpy as np
import safetensors.torch
import torch


def text_config(directory):
    """The language model's part of config.json: multimodal checkpoints keep it one level down."""
    config = json.loads((pathlib.Path(directory) / "config.json").read_text())
    return config.get("text_config", config)


def rope_settings(config):
    """(theta, scaling) from either spelling; scaling is None when the frequencies are left as they are."""
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = settings.get("rope_type", settings.get("type", "default"))
    theta = settings.get("rope_theta", config.get("rope_theta", 10000.0))
    if kind not in ("default", "yarn"):
        raise ValueError(f"rotary type {kind!r} is not covered by these goldens")
    return theta, settings if kind == "yarn" else None


def yarn_magnitude(factor, mscale):
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def yarn_frequencies(dim, theta, scaling):
    """Inverse frequencies [dim / 2]: the fast ones kept, the slow ones divided by the factor, a ramp between."""
    base = theta ** (-np.arange(0, dim, 2) / dim)
    if scaling is None:
        return base

    def index_of(rotations):
        return dim * math.log(scaling["original_max_position_embeddings"] / (rotations * 2 * math.pi)) / (
            2 * math.log(theta))

    low = max(math.floor(index_of(scaling.get("beta_fast", 32))), 0)
    high = min(math.ceil(index_of(scaling.get("beta_slow", 1))), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low if high != low else 0.001), 0, 1)
    return base * (1 - ramp) + base / scaling["factor"] * ramp


def yarn_attention_factor(scaling):
    """What cos and sin are multiplied by. Only when both mscale keys are given do they set it."""
    if scaling is None:
        return 1.0
    if scaling.get("attention_factor") is not None:
        return scaling["attention_factor"]
    one, other = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if one and other:
        return yarn_magnitude(scaling["factor"], one) / yarn_magnitude(scaling["factor"], other)
    return yarn_magnitude(scaling["factor"], 1.0)


def load_tensors(directory):
    """All tensors of a checkpoint by their names in the files, in their stored types."""
    tensors = {}
    for path in sorted(pathlib.Path(directory).glob("*.safetensors")):
        if path.name != "golden.safetensors":
            tensors |= safetensors.torch.load_file(path)
    return tensors


def language_tensors(directory):
    """The language model's tensors under their plain names (`model...`, `lm_head.weight`)."""
    kept = {}
    for name, tensor in load_tensors(directory).items():
        name = name.removeprefix("language_model.")
        if name.startswith(("model.", "lm_head.")) and not name.endswith("rotary_emb.inv_freq"):
            kept[name] = tensor
    return kept


def save_tensors(path, tensors):
    safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, path, {"format": "pt"})
    pathlib.Path(path).chmod(0o644)  # safetensors makes files that only their owner can read.


def save_config(directory, config):
    path = pathlib.Path(directory) / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=1) + "\n")


def as_float64(tensors):
    return {name: tensor.to(torch.float64).numpy() for name, tensor in tensors.items()}
