#!/usr/bin/env python3
"""Command lines, config files, checkpoints and tokenizers with which no process may start: it ends with its exit status, and with one
line that says which field has which value and what was expected.

    starts_test.py --show [NAME...]    prints what the processes say now, for a new row of a table
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import checkpoint_cases  # noqa: E402
import command_line_cases  # noqa: E402
import starts  # noqa: E402
import tokenizer_cases  # noqa: E402
from processes import MODELS, Service  # noqa: E402

TARGET = os.path.join(MODELS, "target")


def fill(text, folder):
    return text.replace("FOLDER", str(folder)).replace("TARGET", TARGET) if isinstance(text, str) else text


def matches(said, expected):
    """An expectation that ends with dots leaves the rest to the library whose words it is."""
    return said.startswith(expected[:-3]) if expected.endswith("...") else said == expected


def command_line(process, case, folder):
    (folder / "file").write_text("a file")
    flags = [fill(flag, folder) for flag in case.flags]
    if case.config is not None:
        config = folder / "config.textproto"
        config.write_bytes(fill(case.config, folder).encode("latin-1"))
        flags = ["--config", config, *flags]
    return starts.run(process, flags)


def outcomes():
    """Of every case: process, case, what was found wrong (or nothing), and what it said."""
    for process, cases in command_line_cases.TABLE:
        for case in cases:
            with tempfile.TemporaryDirectory(prefix="arborist-bad-") as name:
                yield (process, case, *judge(process, case, command_line(process, case, pathlib.Path(name)), name))
    for table in (checkpoint_cases, tokenizer_cases):
        for process, model, flags, cases in table.TABLE:
            copies = starts.Copies(model, getattr(table, "NAMES", None))
            try:
                for case in cases:
                    folder = copies.make(case.damage)
                    words = [fill(word, folder) for word in flags.split()] + ["--listen", f"unix:{copies.top}/x.sock"]
                    yield (process, case, *judge(process, case, starts.run(process, words), folder))
                yield (process, starts.Case("whole", ""), whole(process, copies, flags), "")
            finally:
                copies.remove()


def judge(process, case, run, folder):
    status, stderr, stdout = run
    try:
        said = starts.refusal(process, stderr)
    except AssertionError as error:
        return str(error), stderr
    expected = fill(case.says, folder).replace("CONFIG", f"{process.capitalize()}Config")
    wrong = []
    if status != case.status:
        wrong.append(f"exit status {status}, expected {case.status}")
    if not matches(said, expected):
        wrong.append(f"it says\n  {said}\nexpected\n  {expected}")
    if stdout:
        wrong.append(f"standard output: {stdout}")
    return "\n".join(wrong), said.replace(str(folder), "FOLDER").replace(TARGET, "TARGET")


def whole(process, copies, flags):
    """The undamaged copy serves: so the damages are what the others are refused for, and no copy has written into a shared file."""
    words = [fill(word, copies.make(None)) for word in flags.split()]
    service = Service(str(copies.top), process, words)
    service.start(wait=False)
    try:
        subprocess.run([os.path.join(starts.BIN, "arborist"), "health", "--address", service.address, "--wait", "60s"],
                       check=True, capture_output=True, timeout=90)
        if process == "verifier":  # which listens before it has loaded
            service.wait_serving()
        status = service.terminate()
    finally:
        service.kill()
    return "" if status == 0 else f"the whole model ends with {status} after SIGTERM"


class Starts(unittest.TestCase):
    def test_every_bad_input_is_refused_in_one_line_that_names_it(self):
        cases = 0
        for process, case, wrong, _ in outcomes():
            cases += 1
            with self.subTest(process=process, case=case.name):
                self.assertFalse(wrong, wrong)
        print(f"{cases} starts", file=sys.stderr)


if __name__ == "__main__":
    if "--show" in sys.argv:
        names = sys.argv[sys.argv.index("--show") + 1:]
        for process, case, wrong, said in outcomes():
            if not names or case.name in names:
                print(f"{process} {case.name}\t{said}\t{'wrong' if wrong else 'right'}")
    else:
        unittest.main()
