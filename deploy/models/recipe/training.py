"""What both training stages share: device, data windows, optimiser, compilation."""
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

from config import CONTEXT, WORK

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EXPORT = f"{WORK}/export"
_START = time.time()


def log(*words):
    print(f"[{time.time() - _START:6.1f}s]", *words, flush=True)


def autocast():
    return torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=DEVICE == "cuda")


def load_tokens(name):
    return torch.from_numpy(np.load(f"{WORK}/{name}.npy").astype(np.int32)).to(DEVICE)


def windows(data, starts, length):
    return data[starts[:, None] + torch.arange(length, device=data.device)[None]].long()


def random_windows(data, count, length, generator):
    return windows(data, torch.randint(len(data) - length, (count,), device=data.device, generator=generator), length)


def adamw(model, rate, decay):
    """AdamW with decay on matrices only"""
    matrix = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    other = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    groups = [dict(params=matrix, weight_decay=decay), dict(params=other, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-10, fused=DEVICE == "cuda")


def set_rate(optimizer, peak, step, warmup, done):
    """a short warm-up, then straight down to zero over the share of the time that is done"""
    rate = peak * min(1.0, (step + 1) / warmup) * max(0.0, 1 - done)
    for g in optimizer.param_groups:
        g["lr"] = rate
    return rate


def compiled(module):
    """compiled in place, one module at a time: a whole-model graph takes minutes to build"""
    if DEVICE == "cuda":
        torch._dynamo.config.automatic_dynamic_shapes = False
        torch._dynamo.config.cache_size_limit = 64
        module.compile()
    return module


def pick_attention():
    """Times the fused attention kernels on the training shape and switches off all but the fastest."""
    torch.set_float32_matmul_precision("high")
    if DEVICE != "cuda":
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel
    shape, times = (32, 8, CONTEXT, 64), {}
    q, k, v = (torch.randn(shape, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        try:
            with sdpa_kernel(backend):
                for i in range(7):
                    if i == 2:
                        torch.cuda.synchronize()
                        begin = time.time()
                    F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.1).backward(v)
                torch.cuda.synchronize()
                times[backend.name] = (time.time() - begin) / 5 * 1e3
        except RuntimeError as e:
            log(backend.name, "failed:", str(e)[:200])
    log("attention forward + backward, ms:", {k: round(t, 2) for k, t in times.items()})
    best = min(times, key=times.get)
    torch.backends.cuda.enable_cudnn_sdp(best == "CUDNN_ATTENTION")
    torch.backends.cuda.enable_flash_sdp(best == "FLASH_ATTENTION")


def save_checkpoint(name, **state):
    """whole, or not at all: a stage that is stopped while it writes leaves the former file"""
    path = f"{WORK}/{name}.checkpoint.pt"
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def load_checkpoint(name):
    path = f"{WORK}/{name}.checkpoint.pt"
    return torch.load(path, map_location=DEVICE, weights_only=False) if os.path.exists(path) else None


def sampler(temperature, generator=None):
    """choose(logits, position) for Target.generate: argmax, or a draw by exponential race"""
    def choose(logits, _):
        if temperature == 0:
            return logits.argmax(-1)
        race = torch.empty_like(logits).exponential_(generator=generator)
        return (logits / temperature - race.log()).argmax(-1)
    return choose
