#!/usr/bin/env python3
"""Three real processes and the shipped pair on one GPU: tokens/s, where a round's time goes and how long the GPU is idle.

  tests/gpu/end_to_end.py [--quick] [--mps with|without|both] [--batches 1,8,32] [--temperatures 0,1] [--modes off,tree16,auto]
                          [--tokens N] [--repeats N] [--json FILE]

Modes alternate inside every repeat; one client process sends all requests of a batch at once. tokens/s is the sum of the requests'
own rates after their first chunk, median over the repeats; the text of every request is compared with plain decoding's.
--quick measures everything, with and without MPS, in about two minutes.

Per round of a sequence: draft, verify, wire and queue as the services report them (the wire is all that passes between sending a tree
and receiving its tokens without the verifier working or the tree waiting for its turn). From the services' GPU traces (--gpu-trace), over the
time in which all requests of a batch decode: GPU time of a draft and of a verify step, and the idle share, in which neither process's
recorded work runs. At batch 1 the idle time of a round is compared with the round trip of an empty call over the same socket, made
every 0.8 ms as a round is.

Limits: speed-up at least 0.85 x tokens a round x t_off / (draft + verify + wire); idle at batch 1 at most round trip + 25 us; idle share at
batch 32 at most 10 %.
"""
import argparse
import bisect
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "pipeline"))
from processes import Cluster, client  # noqa: E402
from throughput import PROMPTS  # noqa: E402

from gpu_run import binary_hash, commit, device  # noqa: E402
from mps import Mps  # noqa: E402
from programs import BIN, named, require  # noqa: E402

MODES = ["off", "chain7", "tree8", "tree16", "tree32", "tree64", "auto"]
PROGRAMS = ("arborist-verifier", "arborist-drafter", "arborist-coordinator", "arborist")
FORMULA_SHARE = 0.85
IDLE_BEYOND_ROUND_TRIP_US = 25
IDLE_SHARE_AT_32 = 0.10


def parts(mode):
    """"tree16" -> ("tree", 16)"""
    name, nodes = re.fullmatch(r"([a-z]+)(\d*)", mode).groups()
    return name, int(nodes or 0)


def request_line(mode, index, temperature, tokens, repeat):
    """A GenerateRequest in text format, one line."""
    name, nodes = parts(mode)
    prompt = PROMPTS[(index + repeat) % len(PROMPTS)].encode("unicode_escape").decode().replace('"', '\\"')
    return (f'text: "{prompt}" max_tokens: {tokens} temperature: {temperature} seed: {1 + index + 1000 * repeat} ignore_eos: true '
            f"speculation {{ mode: SPECULATION_MODE_{name.upper()} {f'tree_nodes: {nodes}' if nodes else ''} }}")


def one_batch(cluster, mode, batch, temperature, tokens, repeat):
    path = os.path.join(cluster.folder, "requests.txt")
    pathlib.Path(path).write_text("".join(request_line(mode, i, temperature, tokens, repeat) + "\n" for i in range(batch)))
    done = subprocess.run([client(), "batch", "--address", cluster.coordinator.address, "--requests", path, "--timeout", "60s"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"batch failed with {done.returncode}: {done.stdout[-500:]}{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def round_trip_us(address, *flags):
    done = subprocess.run([client(), "ping", "--address", address, *flags], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["median_us"]


class Trace:
    """The recorded work of one process, in order: (begin, end) in ns of the monotonic clock, and what it was."""

    def __init__(self, path):
        self.work = []
        for line in pathlib.Path(path).read_text().splitlines():
            begin, end, what = line.split(" ", 2)
            self.work.append((int(begin), int(end), what))
        self.ends = [end for _, end, _ in self.work]

    def inside(self, begin, end):
        return [one for one in self.work[bisect.bisect_left(self.ends, begin):bisect.bisect_right(self.ends, end)] if one[0] >= begin]


def union_ns(intervals):
    total, until = 0, 0
    for begin, end, *_ in sorted(intervals):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def gpu_times(windows, verify, draft):
    """What the GPU did in these windows."""
    steps, drafts, idle, whole, gaps = [], [], 0, 0, []
    for begin, end in windows:
        of_verify, of_draft = verify.inside(begin, end), draft.inside(begin, end)
        if len(of_verify) < 3:
            continue
        begin, end = of_verify[0][1], of_verify[-1][1]  # whole rounds
        of_verify, of_draft = verify.inside(begin, end), draft.inside(begin, end)
        both = of_verify + of_draft
        whole += end - begin
        idle += end - begin - union_ns(both)
        steps += of_verify
        drafts += of_draft
        last = begin
        for one in of_verify:
            between = [work for work in both if last <= work[0] and work[1] <= one[1]]
            gaps.append(one[1] - last - union_ns(between))
            last = one[1]
    if not steps:
        return {}
    # At batch 1: the two halves of a round's idle time.
    order = sorted(steps + drafts)
    hops = {"to_draft": [], "to_verify": []}
    for one, other in zip(order, order[1:]):
        if ("draft" in one[2]) != ("draft" in other[2]):
            hops["to_draft" if "draft" in other[2] else "to_verify"].append(other[0] - one[1])
    rows = [int(re.search(r"of (\d+)", what).group(1)) for _, _, what in steps]
    streams = [int(re.search(r"of (\d+)", what).group(1)) for _, _, what in drafts]
    return {"verify_us": round(statistics.median(end - begin for begin, end, _ in steps) / 1e3, 1), "verify_steps": len(steps),
            "verify_rows": round(statistics.mean(rows), 1),
            "draft_us": round(statistics.median(end - begin for begin, end, _ in drafts) / 1e3, 1) if drafts else 0,
            "drafts": len(drafts), "draft_streams": round(statistics.mean(streams), 1) if streams else 0,
            "idle_share": round(idle / whole, 4), "idle_us_per_step": round(statistics.median(gaps) / 1e3, 1),
            **{f"{name}_us": round(statistics.median(times) / 1e3, 1) for name, times in hops.items() if times}}


class Cell:
    """One batch size, temperature and mode; adds up over the repeats."""

    def __init__(self, batch, temperature, mode):
        self.batch, self.temperature, self.mode = batch, temperature, mode
        self.rates, self.windows = [], []
        self.tokens, self.rounds, self.seconds = 0, 0, dict.fromkeys(("queue", "draft", "verify", "wire", "decode"), 0.0)

    def add(self, answers):
        rate = 0.0
        for answer in answers:
            # From the first chunk on, which the first round brought.
            seconds = dict(answer["seconds"], decode=1e-9 * (answer["end_ns"] - answer["first_chunk_ns"]))
            tokens = len(answer["token_ids"]) - answer["first_chunk_tokens"]
            rate += tokens / seconds["decode"]
            self.tokens += tokens
            self.rounds += max(1, answer["rounds"] - 1)
            for part in self.seconds:
                self.seconds[part] += seconds[part]
        self.rates.append(rate)
        self.windows.append((max(answer["first_chunk_ns"] for answer in answers), min(answer["end_ns"] for answer in answers)))

    def row(self, off):
        rounds = max(1, self.rounds)
        row = {"batch": self.batch, "temperature": self.temperature, "mode": self.mode,
               "tokens_per_second": round(statistics.median(self.rates), 1), "low": round(min(self.rates), 1),
               "high": round(max(self.rates), 1), "tokens_per_round": round(self.tokens / rounds, 3),
               "round_us": {part: round(1e6 * spent / rounds, 1) for part, spent in self.seconds.items()}}
        if off is not None:
            row["speedup"] = round(statistics.median(self.rates) / statistics.median(off.rates), 3)
            spent = sum(self.seconds[part] for part in ("draft", "verify", "wire"))
            if self.mode != "off" and spent > 0:
                # tokens a round x t_off / (draft + verify + wire), t_off the time of a token of plain decoding
                row["formula"] = round(self.tokens / spent * off.seconds["decode"] / off.tokens, 3)
                row["of_formula"] = round(row["speedup"] / row["formula"], 3)
        return row


def measure(cluster, options):
    cells = {}
    for batch in options.batches:
        for temperature in options.temperatures:
            of_modes = {mode: Cell(batch, temperature, mode) for mode in options.modes}
            for repeat in range(options.repeats):
                texts = None
                for mode, cell in of_modes.items():
                    answers = one_batch(cluster, mode, batch, temperature, options.tokens, repeat)
                    ids = [answer["token_ids"] for answer in answers]
                    texts = texts or ids
                    if ids != texts:
                        sys.exit(f"{mode}, batch {batch}, T={temperature}: the text differs from {options.modes[0]}'s")
                    cell.add(answers)
                print(f"batch {batch} T={temperature:g}: repeat {repeat + 1} of {options.repeats}, tokens/s "
                      + " ".join(f"{mode} {cell.rates[-1]:.0f}" for mode, cell in of_modes.items()), flush=True)
            cells[batch, temperature] = of_modes
    return cells


def judge(row):
    """Which limits the row misses."""
    missed = []
    if row.get("of_formula", 1) < FORMULA_SHARE:
        missed.append(f"speed-up {row['of_formula']} of the formula")
    gpu = row.get("gpu", {})
    speculates = row["mode"] != "off" and gpu.get("drafts", 0) > 0
    if row["batch"] == 1 and speculates and gpu["idle_us_per_step"] > row["round_trip_us"] + IDLE_BEYOND_ROUND_TRIP_US:
        missed.append(f"idle {gpu['idle_us_per_step']} us a round")
    if row["batch"] == 32 and speculates and gpu["idle_share"] > IDLE_SHARE_AT_32:
        missed.append(f"idle {100 * gpu['idle_share']:.1f} %")
    return missed


def show(row):
    gpu = row.get("gpu", {})
    print("{mps:4} batch {batch:3} T={temperature:g} {mode:7} {tokens_per_second:8.0f} tok/s".format(**row)
          + (f" x{row['speedup']:.2f}" if "speedup" in row else "") + f" {row['tokens_per_round']:.2f}/round"
          + (f" formula x{row['formula']:.2f}" if "formula" in row else "")
          + " us: " + " ".join(f"{part} {us:.0f}" for part, us in row["round_us"].items())
          + (" gpu: verify {verify_us} ({verify_rows} rows) draft {draft_us} ({draft_streams}) idle {idle_us_per_step} us, "
             .format(**gpu) + f"{100 * gpu['idle_share']:.1f} %" if gpu else "")
          + (f" (to the drafter {gpu['to_draft_us']}, to the verifier {gpu['to_verify_us']})" if row["batch"] == 1 and "to_draft_us" in gpu else "")
          + (" MISSED: " + "; ".join(row["missed"]) if row["missed"] else ""), flush=True)


def run(options, mps):
    with tempfile.TemporaryDirectory(prefix="arborist-trace-") as traces:
        cluster = Cluster(device=options.device)
        if options.device == "cuda":
            for service in (cluster.verifier, cluster.drafter):
                service.flags += ["--gpu-trace", f"{traces}/{service.name}"]
        try:
            cluster.start()
            one_batch(cluster, options.modes[-1], 2, 0, 32, 0)  # warm-up
            busy_round_trip = round_trip_us(cluster.verifier.address, "--count", "1000")
            # At the pace of a round: cores that slept for so long wake up slowly.
            round_trip = round_trip_us(cluster.verifier.address, "--count", "500", "--pause", "800us")
            cells = measure(cluster, options)
            for service in (cluster.coordinator, cluster.drafter, cluster.verifier):
                service.terminate()  # they write their traces out
        finally:
            cluster.stop()
        tracing = options.device == "cuda"
        verify, draft = (Trace(f"{traces}/{name}") if tracing else None for name in ("verifier", "drafter"))
        rows = []
        for of_modes in cells.values():
            for cell in of_modes.values():
                row = {"mps": "mps" if mps else "none", **cell.row(of_modes.get("off")), "round_trip_us": round_trip,
                       "busy_round_trip_us": busy_round_trip}
                if tracing:
                    row["gpu"] = gpu_times(cell.windows, verify, draft)
                row["missed"] = judge(row)
                rows.append(row)
                show(row)
        print(f"{'mps' if mps else 'none'}: round trip of an empty call {round_trip} us, of calls one after the other "
              f"{busy_round_trip} us", flush=True)
        return rows


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--tokens", type=int, default=256)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--batches", type=numbers(int), default=[1, 8, 32])
    arguments.add_argument("--temperatures", type=numbers(float), default=[0.0, 1.0])
    arguments.add_argument("--modes", type=numbers(str), default=MODES)
    arguments.add_argument("--mps", choices=("with", "without", "both"), default="both")
    arguments.add_argument("--device", default="cuda", help="cpu: no GPU times; to try this script")
    arguments.add_argument("--json")
    options = arguments.parse_args()
    if options.quick:
        options.repeats = 2
    card = device()
    if card is None and options.device == "cuda":
        print("skipped: no CUDA device")
        return
    require("arborist", "batch", "ping")
    for program in ("arborist-verifier", "arborist-drafter"):
        require(program, "device", "gpu-trace")
    print(f"programs of {BIN}, commit {commit()}", flush=True)
    rows = []
    if options.mps != "without":
        with Mps():
            rows += run(options, True)
    if options.mps != "with":
        rows += run(options, False)
    if options.json:
        result = {"mode": "end_to_end", "command": "tests/gpu/end_to_end.py " + " ".join(sys.argv[1:]), "commit": commit(),
                  "binaries": binary_hash(PROGRAMS), "programs": named(PROGRAMS), "device": card, "cpus": os.cpu_count(),
                  "date": datetime.date.today().isoformat(), "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
