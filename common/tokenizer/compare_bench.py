"""Encoding and decoding speed beside Hugging Face tokenizers: one thread each, in turns on one machine.

    python compare_bench.py BENCH DIRECTORY FILE [ROUNDS]

BENCH is the built tokenizer_bench. Prints the best MB/s of each side over all rounds, and their ratio. Needs the package tokenizers.
"""

import os
import pathlib
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402  (reads the line above)


def theirs(tokenizer, text):
    """MB/s; encode_batch_fast is their fastest call: it keeps no offsets."""
    def timed(run):
        start = time.perf_counter()
        out = run()
        return len(text.encode()) / 1e6 / (time.perf_counter() - start), out
    whole, out = timed(lambda: tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)
    lines, _ = timed(lambda: tokenizer.encode_batch_fast(text.split("\n"), add_special_tokens=False))
    decode, _ = timed(lambda: tokenizer.decode(out, skip_special_tokens=False))
    return {"encode": whole, "encode_lines": lines, "decode": decode}


def ours(bench, directory, path):
    lines = subprocess.run([bench, directory, path], check=True, capture_output=True, text=True).stdout.splitlines()[1:]
    return {line.split()[0]: float(line.split()[-2]) for line in lines}


def main():
    bench, directory, path = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(directory) / "tokenizer.json"))
    text = pathlib.Path(path).read_text()
    best = [{}, {}]
    for _ in range(rounds):
        for side, speeds in zip(best, (theirs(tokenizer, text), ours(bench, directory, path))):
            for name, speed in speeds.items():
                side[name] = max(side.get(name, 0), speed)
    for name in best[0]:
        print(f"{name:14s} {best[1][name]:8.2f} MB/s, Hugging Face {best[0][name]:8.2f} MB/s, ratio {best[1][name] / best[0][name]:6.2f}")


if __name__ == "__main__":
    main()
