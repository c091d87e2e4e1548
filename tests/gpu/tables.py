#!/usr/bin/env python3
"""Keeps the GPU table of kernels/README.md equal to tests/gpu/results/bench.json: --write makes it, --check compares."""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / "kernels/README.md"
RESULT = ROOT / "tests/gpu/results/bench.json"
BEGIN = "<!-- gpu figures: made by tests/gpu/tables.py --write -->"
END = "<!-- end of gpu figures -->"


def table(result):
    """The figures that have a goal, and what stood beside them; the others are in the file."""
    controls = [row for row in result["rows"] if row["kernel"] == "control"]
    copies = [row["microseconds"] for row in controls if "TB/s" in row["shape"]]
    empty = sorted(row["microseconds"] for row in controls if "empty" in row["shape"])
    cublas = max((row["microseconds"] for row in controls if "cuBLAS" in row["shape"]), default=0)
    beside = {("linear" + row["kernel"].removeprefix("cuBLAS"), row["shape"]): f'cuBLAS {row["microseconds"]:.2f}'
              for row in result["rows"] if row["kernel"].startswith("cuBLAS")}
    goals = [row for row in result["rows"] if row.get("goal_microseconds", 0) > 0]
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


def expected(text):
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    body = table(json.loads(RESULT.read_text())) if RESULT.exists() else "None are committed yet."
    return f"{before}{BEGIN}\n\n{body}\n\n{END}{after}"


def main():
    if sys.argv[1:] not in (["--check"], ["--write"]):
        sys.exit("usage: tests/gpu/tables.py --check | --write")
    text = README.read_text()
    if BEGIN not in text or END not in text:
        sys.exit(f"{README} lacks the lines {BEGIN!r} and {END!r}")
    if sys.argv[1] == "--write":
        README.write_text(expected(text))
    elif text != expected(text):
        sys.exit(f"{README} differs from {RESULT}: run tests/gpu/tables.py --write")
    else:
        print("kernels/README.md equals the committed figures")


if __name__ == "__main__":
    main()
