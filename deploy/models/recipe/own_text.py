#!/usr/bin/env python3
"""The target continues prompts from the corpus; the drafter learns from that text: own_text.py --rounds N"""
import argparse
import time

import numpy as np
import torch

import storage
from config import SMOKE, WORK
from target import Target
from training import DEVICE, EXPORT, autocast, load_tokens, log, random_windows, sampler

ROWS, PROMPT, CONTINUATION = (16, 32, 32) if SMOKE else (4096, 640, 384)
TEMPERATURES = [0.0, 1.0, 0.6]


def load_target():
    return Target().load_export(storage.load_folder(f"{EXPORT}/target")).to(DEVICE).eval()


def main(rounds):
    torch.set_float32_matmul_precision("high")
    target, data = load_target(), load_tokens("train")
    generator = torch.Generator(device=DEVICE).manual_seed(2)
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float32
    rows, begin = [], time.time()
    for r in range(rounds):
        prompts = random_windows(data, ROWS, PROMPT, generator)
        with torch.no_grad(), autocast():
            choose = sampler(TEMPERATURES[r % len(TEMPERATURES)], generator)
            rows.append(target.generate(prompts, CONTINUATION, choose, dtype).to(torch.int32).cpu())
        log("round", r, ROWS * CONTINUATION, "tokens")
    np.save(f"{WORK}/own.npy", torch.cat(rows).numpy().astype(np.uint16))
    storage.write_json(f"{EXPORT}/own_text.stats.json", dict(
        tokens=rounds * ROWS * CONTINUATION, prompt=PROMPT, continuation=CONTINUATION, temperatures=TEMPERATURES,
        seconds=time.time() - begin))


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--rounds", type=int, default=9)
    main(a.parse_args().rounds)
