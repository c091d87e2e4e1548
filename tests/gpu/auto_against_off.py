#!/usr/bin/env python3
"""AUTO against plain decoding: three real processes and the shipped pair, interleaved, with a 95 % interval.

  tests/gpu/auto_against_off.py [--device cuda|cpu] [--mps] [--batches 1,8,32] [--temperatures 0,1] [--alternations N]
                                [--others tree8,tree16] [--tokens N] [--json FILE]

One alternation sends the same requests with `off` and with `auto` (and with --others), in turning order; the text must be the same. The
figure is the mean over the alternations of rate(auto) / rate(off) - 1, where a rate is the sum over the requests of tokens by whole
time, prompt included; its 95 % interval is Student's. It holds where the interval lies above -2 %. The services run on from cell to cell, so what AUTO learned
in one is what it begins the next with; one alternation in advance is not counted. Without a GPU --device cpu shows the same on the CPU.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "pipeline"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from end_to_end import Mps, one_batch  # noqa: E402
from gpu_run import binary_hash, commit, device  # noqa: E402
from processes import Cluster  # noqa: E402
from programs import BIN, named, require  # noqa: E402

LIMIT = -0.02
PROGRAMS = ("arborist-verifier", "arborist-drafter", "arborist-coordinator", "arborist")
# Student's t for 95 %, two-sided, by degrees of freedom.
STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093, 29: 2.045}


def student(freedom):
    return STUDENT[max((known for known in STUDENT if known <= freedom), default=1)]


def rate(answers):
    return sum(len(answer["token_ids"]) / answer["seconds"]["total"] for answer in answers)


def compare(cluster, batch, temperature, options):
    modes = ["off", "auto"] + options.others
    rates = {mode: [] for mode in modes}
    tokens, rounds = 0, 0
    for alternation in range(-1, options.alternations):
        texts = None
        turn = alternation % len(modes)
        for mode in modes[turn:] + modes[:turn]:
            answers = one_batch(cluster, mode, batch, temperature, options.tokens, alternation + 1)
            ids = [answer["token_ids"] for answer in answers]
            texts = texts or ids
            if ids != texts:
                sys.exit(f"{mode}, batch {batch}, T={temperature}: the text differs")
            if alternation >= 0:
                rates[mode].append(rate(answers))
                if mode == "auto":
                    tokens += sum(len(answer["token_ids"]) for answer in answers)
                    rounds += sum(answer["rounds"] for answer in answers)
    against = [auto / off - 1 for auto, off in zip(rates["auto"], rates["off"])]
    mean = statistics.mean(against)
    half = student(len(against) - 1) * statistics.stdev(against) / len(against) ** 0.5
    best = max(modes, key=lambda mode: statistics.median(rates[mode]))
    return {"batch": batch, "temperature": temperature, "alternations": len(against), "mean": round(mean, 4),
            "low": round(mean - half, 4), "high": round(mean + half, 4), "holds": mean - half > LIMIT,
            "tokens_per_second": {mode: round(statistics.median(rates[mode]), 1) for mode in modes}, "best": best,
            "auto_tokens_per_round": round(tokens / max(1, rounds), 2), "each": [round(one, 3) for one in against],
            "auto_of_best": round(statistics.median(rates["auto"]) / statistics.median(rates[best]), 3)}


def run(options):
    cluster = Cluster(device=options.device)
    rows = []
    try:
        cluster.start()
        one_batch(cluster, "tree16", 1, 0.0, 32, 0)
        for batch in options.batches:
            for temperature in options.temperatures:
                row = compare(cluster, batch, temperature, options)
                rows.append(row)
                print("batch {batch:3} T={temperature} auto against off {mean:+.1%} [{low:+.1%}, {high:+.1%}] {verdict}  {tokens_per_second}"
                      "  {auto_of_best:.0%} of the best, {auto_tokens_per_round} a round".format(verdict="holds" if row["holds"] else "FAILS", **row), flush=True)
    finally:
        cluster.stop()
    return rows


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    arguments.add_argument("--mps", action="store_true")
    arguments.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 8, 32])
    arguments.add_argument("--temperatures", type=lambda text: [float(part) for part in text.split(",")], default=[0.0, 1.0])
    arguments.add_argument("--alternations", type=int, default=20)
    arguments.add_argument("--others", type=lambda text: [part for part in text.split(",") if part], default=[])
    arguments.add_argument("--tokens", type=int, default=256)
    arguments.add_argument("--json")
    options = arguments.parse_args()
    card = device() if options.device == "cuda" else "cpu"
    if card is None:
        print("skipped: no CUDA device")
        return
    require("arborist", "batch")
    for program in ("arborist-verifier", "arborist-drafter"):
        require(program, "device")
    print(f"programs of {BIN}, commit {commit()}", flush=True)
    if options.mps:
        with Mps():
            rows = run(options)
    else:
        rows = run(options)
    if options.json:
        result = {"mode": "auto_against_off", "commit": commit(), "binaries": binary_hash(PROGRAMS), "programs": named(PROGRAMS), "mps": options.mps,
                  "device": card, "cpus": os.cpu_count(),
                  "date": datetime.date.today().isoformat(), "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    if not all(row["holds"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
