"""Reads and writes checkpoints: safetensors files, sharded with an index where asked for."""
import json
import os
import struct

import torch

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int32: "I32", torch.int64: "I64"}
TYPES = {v: k for k, v in NAMES.items()}


def save(path, tensors):
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, t in tensors.items():
        t = t.detach().cpu().contiguous()
        raw = (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy().tobytes()
        header[name] = dict(dtype=NAMES[t.dtype], shape=list(t.shape), data_offsets=[at, at + len(raw)])
        blobs.append(raw)
        at += len(raw)
    h = json.dumps(header).encode()
    h += b" " * (-len(h) % 8)        # the data begins at a multiple of 8 bytes
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(blobs))


def load(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, e in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            a, b = e["data_offsets"]
            raw = bytearray(data[8 + n + a:8 + n + b])
            out[name] = torch.frombuffer(raw, dtype=TYPES[e["dtype"]]).view(e["shape"])
    return out


def save_sharded(folder, tensors, shards):
    """model-0000x-of-0000y.safetensors of about equal size, in the order of tensors, and the index over them"""
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    parts, used = [{} for _ in range(shards)], 0
    for name, t in tensors.items():
        parts[min(used * shards // total, shards - 1)][name] = t
        used += t.numel() * t.element_size()
    where = {}
    for i, part in enumerate(parts):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        save(os.path.join(folder, file), part)
        where.update(dict.fromkeys(part, file))
    write_json(os.path.join(folder, "model.safetensors.index.json"),
               dict(metadata=dict(total_size=total), weight_map=where))


def load_folder(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return load(os.path.join(folder, "model.safetensors"))
    with open(index) as f:
        files = sorted(set(json.load(f)["weight_map"].values()))
    return {k: v for file in files for k, v in load(os.path.join(folder, file)).items()}


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")
