#!/usr/bin/env python3
"""Keeps the GPU tables of the READMEs equal to the committed results: --write makes them, --check compares.

kernels/README.md from bench.json; README.md beside this file from the others.
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests/gpu/results"
END = "<!-- end of gpu figures -->"


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def kernel_figures():
    """The figures that have a goal, and what stood beside them; the others are in the file."""
    result = stored("bench")
    controls = [row for row in result["rows"] if row["kernel"] == "control"]
    copies = [row["microseconds"] for row in controls if "TB/s" in row["shape"]]
    empty = sorted(row["microseconds"] for row in controls if "empty" in row["shape"])
    cublas = max((row["microseconds"] for row in controls if "cuBLAS" in row["shape"]), default=0)
    beside = {("linear" + row["kernel"].removeprefix("cuBLAS"), row["shape"]): f'cuBLAS {row["microseconds"]:.2f}'
              for row in result["rows"] if row["kernel"].startswith("cuBLAS")}
    goals = [row for row in result["rows"] if row.get("goal_microseconds", 0) > 0 and row["kernel"] != "verify step"]
    kept = [row for row in goals if row["microseconds"] <= row["goal_microseconds"]]
    lines = [f'{result["device"]}, commit {result["commit"]}, {result["date"]}, `{result["command"]}`. Median of at least 50 graph '
             f'replays with the launch gap, cold L2; floors at 4.25 TB/s (this run copied {min(copies):.2f} to {max(copies):.2f} '
             f"TB/s; cuBLAS reaches {cublas:.0f} TFLOP/s in a bf16 product of 8192 cubed; an empty kernel in a graph takes "
             f"{empty[len(empty) // 2]:.2f} us). Outputs are compared with the oracle in the same run. {len(kept)} of {len(goals)} "
             f"goals are kept. Figures without a goal stand in [bench.json](../tests/gpu/results/bench.json).", "",
             "| kernel | shape | us | floor us | ratio | goal us | beside it |", "|---|---|---|---|---|---|---|"]
    for row in goals:
        us, floor, goal = row["microseconds"], row.get("floor_microseconds", 0), row["goal_microseconds"]
        ratio = f"{floor:.2f} | {us / floor:.2f}" if floor else "- | -"
        lines.append(f'| {row["kernel"]} | {row["shape"]} | {us:.2f} | {ratio} | {goal:.1f}{"" if us <= goal else " (missed)"} | '
                     f'{beside.get((row["kernel"], row["shape"]), "")} |')
    return "\n".join(lines)


def made(result, command):
    cpus = f', {result["cpus"]} CPUs' if "cpus" in result else ""
    return f'{result["device"]}{cpus}, commit {result["commit"]}, {result["date"]}, `{command}`'


def end_to_end():
    """tokens/s, a row for each MPS, batch and temperature; and which limits were missed."""
    lines = [made(stored("end_to_end_mps"), "tests/gpu/end_to_end.py") + ". Tokens/s of all sequences; in brackets times plain decoding.", ""]
    rows = [dict(row, mps=mps) for name, mps in (("end_to_end_mps", "with"), ("end_to_end", "without")) for row in stored(name)["rows"]]
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    lines += ["| MPS | batch | T | " + " | ".join(modes) + " |", "|---" * (3 + len(modes)) + "|"]
    missed = {}
    for key in dict.fromkeys((row["mps"], row["batch"], row["temperature"]) for row in rows):
        cells = {row["mode"]: row for row in rows if (row["mps"], row["batch"], row["temperature"]) == key}
        off = cells["off"]["tokens_per_second"]
        texts = [f'{cells[mode]["tokens_per_second"]:.0f}' + (f' ({cells[mode]["tokens_per_second"] / off:.2f})' if mode != "off" else "")
                 for mode in modes]
        lines.append(f"| {key[0]} | {key[1]} | {key[2]:g} | " + " | ".join(texts) + " |")
        best = max(cells[mode]["tokens_per_second"] for mode in modes if mode != "off") / off
        if key[1] == 1 and best < 2:
            missed.setdefault(key, []).append(f"no mode is twice as fast as off, the best is {best:.2f}")
        for mode in modes:
            for text in cells[mode]["missed"]:
                missed.setdefault(key, []).append(f"{mode}: {text}")
    lines += ["", "Limits missed:", ""]
    lines += [f'- {mps} MPS, batch {batch}, T={temperature:g}: {"; ".join(texts)}' for (mps, batch, temperature), texts in missed.items()]
    return lines


def auto_against_off():
    lines = [made(stored("auto_against_off_mps"), "tests/gpu/auto_against_off.py") + ". AUTO against plain decoding, interleaved; mean and 95 % "
             "interval, which must stay above -2 %.", "", "| MPS | batch | T | alternations | AUTO against off | tokens/s |", "|---|---|---|---|---|---|"]
    for name, mps in (("auto_against_off_mps", "with"), ("auto_against_off", "without")):
        for row in sorted(stored(name)["rows"], key=lambda row: (row["batch"], row["temperature"])):
            rates = ", ".join(f"{mode} {rate:.0f}" for mode, rate in row["tokens_per_second"].items())
            lines.append(f'| {mps} | {row["batch"]} | {row["temperature"]:g} | {row["alternations"]} | {row["mean"]:+.1%} [{row["low"]:+.1%}, '
                         f'{row["high"]:+.1%}]{"" if row["holds"] else " (missed)"} | {rates} |')
    return lines


def note(result):
    """What a reader of the result has to know."""
    return f' Note: {result["note"]}.' if "note" in result else ""


def runs():
    """What the modes of run.sh ended with."""
    lines = []
    for mode in ("check", "gate", "sanitize", "bench"):
        result = stored(mode)
        lines.append(f'- {made(result, result["command"])}: {"ok" if result["ok"] else "not ok"} in {result["seconds"]} s.{note(result)}')
        if mode == "sanitize":
            for tool in dict.fromkeys(row["tool"] for row in result["rows"]):
                rows = [row for row in result["rows"] if row["tool"] == tool]
                complaining = [row["program"] for row in rows if row["complaints"] or row["failed"]]
                lines.append(f'  {tool}: {sum(row["passed"] for row in rows)} tests passed, {sum(len(row["too_slow"]) for row in rows)} too slow, '
                             f'{sum(row["not_begun"] for row in rows)} not begun; complaints: {", ".join(complaining) or "none"}.')
            lines += [f"  Left out: {name} ({reason})." for name, reason in result.get("left_out", {}).items()]
            lines += [f"  Of {name} only {tests}." for name, tests in result.get("filters", {}).items()]
            if reason := result.get("filters_mean"):
                lines.append(f"  Why only those: {reason}.")
    return lines


def grid(title, rows, text):
    """A row for each number of sequences (and context), a column for each number of nodes; shapes read "sequences 1 nodes 8 context 448"."""
    cells = {}
    for row in rows:
        words = row["shape"].split()
        named = {name: int(number) for name, number in zip(words[::2], words[1::2])}
        cells[named["sequences"], named["context"], named["nodes"]] = text(row)
    nodes = sorted({key[2] for key in cells})
    lines = ["", title, "", "| sequences | context | " + " | ".join(f"{n} nodes" for n in nodes) + " |", "|---" * (2 + len(nodes)) + "|"]
    for sequences, context in sorted({key[:2] for key in cells}):
        lines.append(f"| {sequences} | {context} | " + " | ".join(cells.get((sequences, context, n), "") for n in nodes) + " |")
    return lines


def steps():
    """What device_step_cuda_bench and draft_round_cuda_bench say."""
    result = stored("bench")
    of = {(row["kernel"], row["shape"]): row["microseconds"] for row in result["rows"]}

    def step(row):
        forward, fast = of["forward pass", row["shape"]], of["verify step, FAST", row["shape"]]
        return f'{row["microseconds"]:.0f} ({forward:.0f}), {row["microseconds"] / fast:.2f}'

    verify = [row for row in result["rows"] if row["kernel"] == "verify step"]
    draft = [row for row in result["rows"] if row["kernel"] == "draft round"]
    source = made(result, result["command"])
    return [*grid(f"{source}. A verify step of the shipped pair's target in us, from packing on the host to the outcomes there; in brackets the "
                  "forward pass alone; then EXACT / FAST (goal 1.15).", verify, step),
            *grid(f"{source}. A round of the shipped pair's drafter in us, wall clock, three new rows brought along.", draft,
                  lambda row: f'{row["microseconds"]:.0f}')] if verify else []


def tree_builds():
    result = stored("tree_build")
    lines = ["", made(result, "tests/capi/tree_build_bench.py") + ". Trees of all streams in us: a Python heapq loop and our CPU version (one thread, "
             "streams one after another), one launch on the GPU.", "", "| streams | depths | K | nodes | heapq | CPU | GPU |", "|---" * 7 + "|"]
    for row in result["rows"]:
        lines.append(f'| {row["streams"]} | {row["depths"]} | {row["k"]} | {row["budget"]} | {row["python_us"]:.1f} | {row["cpu_us"]:.1f} | '
                     f'{row["gpu_us"]:.2f} |')
    return lines


def gpu_runs():
    return "\n".join([*runs(), "", *end_to_end(), "", *auto_against_off(), *steps(), *tree_builds()])


TABLES = ((ROOT / "kernels/README.md", kernel_figures), (ROOT / "tests/gpu/README.md", gpu_runs))
BEGIN = "<!-- gpu figures: made by tests/gpu/tables.py --write -->"


def expected(text, body):
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{body}\n\n{END}{after}"


def main():
    if sys.argv[1:] not in (["--check"], ["--write"]):
        sys.exit("usage: tests/gpu/tables.py --check | --write")
    for readme, body in TABLES:
        text = readme.read_text()
        if BEGIN not in text or END not in text:
            sys.exit(f"{readme} lacks the lines {BEGIN!r} and {END!r}")
        wanted = expected(text, body())
        if sys.argv[1] == "--write":
            readme.write_text(wanted)
        elif text != wanted:
            sys.exit(f"{readme} differs from the results in {RESULTS}: run tests/gpu/tables.py --write")
        else:
            print(f"{readme.relative_to(ROOT)} equals the committed figures")


if __name__ == "__main__":
    main()
