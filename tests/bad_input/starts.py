"""Starts a process that must refuse its input, and says how it ended."""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Callable, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "pipeline"))
from processes import BIN, MODELS  # noqa: E402

PATIENCE = 60  # seconds; a refusal takes milliseconds, on a busy machine a few seconds
BAD_COMMAND_LINE, CANNOT_START = 2, 1


@dataclasses.dataclass(frozen=True)
class Case:
    """`says` is a pattern that the whole of the one line must match; FOLDER in it is the damaged copy's."""
    name: str
    says: str
    flags: tuple = ()
    config: Optional[str] = None  # a textproto; None: no file
    damage: Optional[Callable] = None  # of a copy of the model that the table's flags name
    status: int = BAD_COMMAND_LINE


class Copies:
    """Damaged copies of one model of the shipped pair."""

    def __init__(self, model, names=None):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="arborist-bad-"))
        whole = self.top / "whole"
        whole.mkdir()
        for file in (pathlib.Path(MODELS) / model).iterdir():
            if file.is_file() and not file.name.startswith(".") and (names is None or file.name in names):
                shutil.copyfile(file, whole / file.name)
        self.whole = whole
        self.made = 0

    def make(self, damage):
        self.made += 1
        folder = self.top / f"copy{self.made}"
        folder.mkdir()
        for file in self.whole.iterdir():
            os.link(file, folder / file.name)
        if damage is not None:
            damage(folder)
        return folder

    def remove(self):
        shutil.rmtree(self.top, ignore_errors=True)


def run(process, flags):
    """Status, what it said, and its standard output."""
    done = subprocess.run([os.path.join(BIN, f"arborist-{process}"), *(flag if isinstance(flag, bytes) else str(flag) for flag in flags)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace", timeout=PATIENCE)
    return done.returncode, done.stderr, done.stdout


def refusal(process, stderr):
    """The one line that says why. gRPC logs of its own why a port cannot be had; the services say that they listen."""
    rest = [line for line in stderr.splitlines()
            if not re.match(rf"{process}:? listens on |E\d{{4}} \S+ +\d+ \w+\.cc:\d+\]", line)]
    if len(rest) != 1 or not rest[0].startswith(f"arborist-{process}: "):
        raise AssertionError(f"expected one line of arborist-{process}, it said:\n{stderr}")
    return rest[0][len(f"arborist-{process}: "):]
