#!/usr/bin/env python3
"""Three real processes and the shipped pair on one GPU: tokens/s for off, chain, trees and auto at several batch sizes.

  tests/gpu/end_to_end.py [--tokens N] [--repeats N] [--batches 1,8,32] [--temperatures 0,1] [--mps] [--json FILE]

Modes alternate inside every repeat. A figure is the sum of the requests' own decode rates (prefill and queue left out), median
over the repeats; the text of every request is compared with plain decoding's. --mps starts a private MPS daemon first.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "pipeline"))
from processes import Cluster  # noqa: E402
from throughput import PROMPTS  # noqa: E402

MODES = [("off", 0), ("chain", 7), ("tree", 8), ("tree", 16), ("tree", 32), ("tree", 64), ("auto", 0)]


def device():
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=True,
                              capture_output=True, text=True).stdout.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


class Mps:
    """A private MPS daemon; everything started meanwhile shares the GPU through it."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="arborist-mps-")
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = self.folder.name
        os.environ["CUDA_MPS_LOG_DIRECTORY"] = self.folder.name
        program = next((p for p in ("/usr/local/nvidia/bin/nvidia-cuda-mps-control", "/usr/bin/nvidia-cuda-mps-control")
                        if os.path.exists(p)), "nvidia-cuda-mps-control")
        self.program = program
        subprocess.run([program, "-d"], check=True)
        return self

    def __exit__(self, *_):
        subprocess.run([self.program], input="quit\n", text=True, check=False, timeout=30)
        del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]
        self.folder.cleanup()


def one_batch(cluster, mode, batch, temperature, tokens, repeat):
    name, nodes = mode
    flags = ["--tree-nodes", nodes] if nodes else []
    running = []
    for i in range(batch):
        running.append(cluster.generate_process(
            "--prompt", PROMPTS[(i + repeat) % len(PROMPTS)], "--max-tokens", tokens, "--ignore-eos", "--temperature", temperature,
            "--seed", 1 + i + 1000 * repeat, "--speculation", name, *flags))
    return [process.communicate_checked() for process in running]


def measure(cluster, batch, temperature, options):
    rates = {mode: [] for mode in MODES}
    sums = {mode: {"tokens": 0, "rounds": 0, "draft": 0.0, "verify": 0.0, "wire": 0.0, "decode": 0.0} for mode in MODES}
    for repeat in range(options.repeats):
        texts = None
        for mode in MODES:
            answers = one_batch(cluster, mode, batch, temperature, options.tokens, repeat)
            ids = [answer["token_ids"] for answer in answers]
            texts = texts or ids
            if ids != texts:
                sys.exit(f"{mode}, batch {batch}, T={temperature}: the text differs from plain decoding's")
            total = 0.0
            for answer in answers:
                seconds = answer["seconds"]
                decode = seconds["total"] - seconds["prefill"] - seconds["queue"]
                total += len(answer["token_ids"]) / decode
                kept = sums[mode]
                kept["tokens"] += len(answer["token_ids"])
                kept["rounds"] += answer["rounds"]
                kept["decode"] += decode
                for part in ("draft", "verify", "wire"):
                    kept[part] += seconds[part]
            rates[mode].append(total)
    rows = []
    plain = statistics.median(rates[MODES[0]])
    for mode in MODES:
        kept = sums[mode]
        rounds = max(1, kept["rounds"])
        rows.append({"batch": batch, "temperature": temperature, "mode": mode[0], "nodes": mode[1],
                     "tokens_per_second": round(statistics.median(rates[mode]), 1),
                     "low": round(min(rates[mode]), 1), "high": round(max(rates[mode]), 1),
                     "speedup": round(statistics.median(rates[mode]) / plain, 3),
                     "tokens_per_round": round(kept["tokens"] / rounds, 3),
                     "round_us": {part: round(1e6 * kept[part] / rounds, 1) for part in ("draft", "verify", "wire", "decode")}})
        print("batch {batch:3} T={temperature} {mode:6}{nodes:3} {tokens_per_second:9.1f} tok/s [{low}..{high}] x{speedup:5.2f} "
              "{tokens_per_round:5.2f} a round, us a round {round_us}".format(**rows[-1]), flush=True)
    return rows


def run(options):
    cluster = Cluster(device="cuda")
    try:
        cluster.start()
        one_batch(cluster, ("tree", 16), 1, 0, 32, 0)  # warm-up
        rows = []
        for batch in options.batches:
            for temperature in options.temperatures:
                rows += measure(cluster, batch, temperature, options)
        return rows
    finally:
        cluster.stop()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tokens", type=int, default=256)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 8, 32])
    arguments.add_argument("--temperatures", type=lambda text: [float(part) for part in text.split(",")], default=[0.0, 1.0])
    arguments.add_argument("--mps", action="store_true")
    arguments.add_argument("--json")
    options = arguments.parse_args()
    card = device()
    if card is None:
        print("skipped: no CUDA device")
        return
    if options.mps:
        with Mps():
            rows = run(options)
    else:
        rows = run(options)
    if options.json:
        result = {"mode": "end_to_end", "mps": options.mps, "device": card, "date": datetime.date.today().isoformat(), "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
