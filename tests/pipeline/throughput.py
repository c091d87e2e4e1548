#!/usr/bin/env python3
"""Tokens a second and accepted length of the shipped pair through the three real processes: plain decoding, chain and trees,
at T = 0 and T = 1, the latter with coupled and uncoupled drafting. Prints a table; never part of ctest.

  tests/pipeline/throughput.py [--tokens N] [--repeats N]

Modes alternate inside every repeat, so a slow moment of the machine touches all of them alike. The figure is the median over
prompts and repeats of decode time alone (prefill and start are left out), beside its interquartile range.
"""
import argparse
import os
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from processes import Cluster, SOURCE  # noqa: E402

PROMPTS = [
    "import os\nimport sys\n\n\ndef read_file(path, encoding='utf-8'):\n    \"\"\"Return the contents of a file.\"\"\"\n",
    "The :mod:`json` module provides an interface for",
    "class Node:\n    def __init__(self, value, parent=None):\n        self.value = value\n",
    "def test_connection_pool(self):\n        pool = ConnectionPool(",
]
MODES = [("off", 0), ("chain", 7), ("tree", 8), ("tree", 16), ("tree", 32), ("tree", 64)]


def measure(cluster, temperature, modes, tokens, repeats):
    """mode -> (tokens/s list, accepted lengths, wire share list)"""
    figures = {mode: ([], [], []) for mode in modes}
    texts = {}
    for repeat in range(repeats):
        for number, prompt in enumerate(PROMPTS):
            for mode in modes:
                name, nodes = mode
                flags = ["--tree-nodes", nodes] if nodes else []
                answer = cluster.generate("--prompt", prompt, "--max-tokens", tokens, "--ignore-eos", "--temperature", temperature,
                                          "--seed", 1 + repeat, "--speculation", name, *flags)
                key = (number, repeat)
                if texts.setdefault(key, answer["token_ids"]) != answer["token_ids"]:
                    sys.exit(f"{mode} wrote another text than {modes[0]} for prompt {number}, seed {1 + repeat}")
                seconds = answer["seconds"]
                decode = seconds["total"] - seconds["prefill"] - seconds["queue"]
                rates, lengths, wire = figures[mode]
                rates.append(len(answer["token_ids"]) / decode)
                lengths += answer["accepted_lengths"]
                wire.append(seconds["wire"] / decode)
    return figures


def show(title, figures):
    print(f"\n{title}\n{'mode':10} {'tokens/s':>9} {'quartiles':>15} {'accepted':>9} {'wire':>6}")
    for (name, nodes), (rates, lengths, wire) in figures.items():
        low, middle, high = statistics.quantiles(rates, n=4)
        accepted = f"{statistics.mean(lengths):9.2f}" if lengths and name != "off" else f"{'':9}"
        label = f"{name} {nodes}" if name == "tree" else name
        print(f"{label:10} {middle:9.0f} {low:7.0f}-{high:<7.0f} {accepted} {100 * statistics.mean(wire):5.1f}%")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tokens", type=int, default=256)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".textproto") as uncoupled:
        with open(os.path.join(SOURCE, "deploy", "config", "drafter.textproto"), encoding="utf-8") as config:
            uncoupled.write(config.read() + "\ncoupled: false\n")
        uncoupled.flush()
        for title, temperature, config in (("T = 0", 0, None), ("T = 1, coupled drafting", 1, None),
                                           ("T = 1, uncoupled drafting", 1, uncoupled.name)):
            cluster = Cluster(drafter_config=config)
            try:
                cluster.start()
                measure(cluster, temperature, MODES[:2], 32, 1)  # warm-up
                show(title, measure(cluster, temperature, MODES, options.tokens, options.repeats))
            finally:
                cluster.stop()


if __name__ == "__main__":
    main()
