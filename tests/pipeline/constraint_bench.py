#!/usr/bin/env python3
"""What a constraint costs a step, and what the drafter's filter gives: the shipped pair through the three real processes. Prints two
tables; never part of ctest.

  tests/pipeline/constraint_bench.py [--tokens N] [--repeats N]

First table: milliseconds of a step of plain decoding, without controls (the floor), with one that masks nothing, and under constraints;
the first request of each apart, for it makes the masks. Second table: drafted nodes that a round accepts and tokens a second with trees of
16, the drafter with a tokenizer and without one.
"""
import argparse
import os
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from processes import Cluster, MODELS  # noqa: E402

PROMPTS = ["import os\nimport sys\n\n\ndef read_file(path):\n    return ", "The settings as JSON:\n", "class Node:\n    def __init__(self, value):\n"]
PERSON = ('{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}, '
          '"tags": {"type": "array", "items": {"type": "string"}, "minItems": 3}, "kind": {"enum": ["a", "b", "c"]}}, '
          '"required": ["name", "age", "tags", "kind"]}')


def cases(folder):
    def schema(name, text):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return ["--json-schema-file", path]

    return {"free": [], "a bias of one token": ["--logit-bias", "5:0.01"], "3 bad words": ["--bad-word", "xyzzy", "--bad-word", "foo", "--bad-word", "\n\n\n\n"],
            "regex: any text": ["--regex", "(.|\\n)*"], "any JSON": schema("any.json", "{}"), "a person": schema("person.json", PERSON),
            "string of <= 1000": schema("bounded.json", '{"type": "string", "maxLength": 1000}')}


def ask(cluster, prompt, tokens, seed, flags, mode):
    return cluster.generate("--prompt", prompt, "--max-tokens", tokens, "--temperature", 0.8, "--seed", seed, *flags, *mode)


def steps(cluster, args, folder):
    print(f"{'plain decoding':22} {'ms a step':>9} {'quartiles':>13} {'of the floor':>12} {'first request':>13}")
    figures = {name: [] for name in cases(folder)}
    for repeat in range(args.repeats):  # cases by turns: a slow moment of the machine touches all of them
        for prompt in PROMPTS:
            for name, flags in cases(folder).items():
                answer = ask(cluster, prompt, args.tokens, repeat, flags, ["--speculation", "off"])
                figures[name].append(answer["seconds"]["verify"] / max(1, len(answer["token_ids"])) * 1e3)
    floor = statistics.median(figures["free"][1:])
    for name, values in figures.items():
        low, middle, high = statistics.quantiles(values[1:], n=4)
        print(f"{name:22} {middle:9.3f} {low:6.3f}-{high:<6.3f} {middle / floor:12.2f} {values[0]:13.3f}")


def drafts(clusters, args, folder):
    print(f"\n{'trees of 16':22} {'filter':>7} {'accepted':>9} {'tokens/s':>9} {'quartiles':>13}")
    for name, flags in cases(folder).items():
        texts, figures = {}, {label: ([], []) for label in clusters}
        for repeat in range(args.repeats):
            for number, prompt in enumerate(PROMPTS):
                for label, cluster in clusters.items():
                    answer = ask(cluster, prompt, args.tokens, repeat, flags, ["--speculation", "tree", "--tree-nodes", 16])
                    if texts.setdefault((number, repeat), answer["token_ids"]) != answer["token_ids"]:
                        sys.exit(f"{name}: another text {label} the filter")
                    seconds = answer["seconds"]
                    figures[label][0].extend(answer["accepted_lengths"])
                    figures[label][1].append(len(answer["token_ids"]) / (seconds["total"] - seconds["prefill"] - seconds["queue"]))
        for label, (lengths, rates) in figures.items():
            low, middle, high = statistics.quantiles(rates, n=4)
            print(f"{name:22} {label:>7} {statistics.mean(lengths):9.2f} {middle:9.0f} {low:6.0f}-{high:<6.0f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        silent = os.path.join(folder, "target")  # the same model without its tokenizer
        shutil.copytree(os.path.join(MODELS, "target"), silent)
        os.remove(os.path.join(silent, "tokenizer.json"))
        clusters = {"with": Cluster(), "without": Cluster(drafter_flags=["--target", silent, "--model", os.path.join(MODELS, "drafter")])}
        try:
            for cluster in clusters.values():
                cluster.start()
                ask(cluster, PROMPTS[0], 30, 0, [], ["--speculation", "tree", "--tree-nodes", 16])  # warm
            steps(clusters["with"], args, folder)
            drafts(clusters, args, folder)
        finally:
            for cluster in clusters.values():
                cluster.stop()


if __name__ == "__main__":
    main()
