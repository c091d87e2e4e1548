"""Which programs the tests and the scripts run: those in ARBORIST_BIN (a bundle's bin/), else in bin/ of the build folder
ARBORIST_BINARY_DIR, else build/release/bin."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(os.environ.get("ARBORIST_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[1])


def folder():
    if os.environ.get("ARBORIST_BIN"):
        return pathlib.Path(os.environ["ARBORIST_BIN"])
    build = os.environ.get("ARBORIST_BINARY_DIR")
    return (pathlib.Path(build) if build else ROOT / "build/release") / "bin"


BIN = folder()


def commit():
    """Of the sources they were built from, as the build wrote it down; a checkout's HEAD says nothing about them."""
    stored = BIN / "COMMIT"
    return stored.read_text().strip() if stored.exists() else "unknown"


def named(names):
    """For a result: where the programs lay and which ran."""
    place = BIN.resolve()
    return {"folder": str(place.relative_to(ROOT) if place.is_relative_to(ROOT) else place), "names": list(names)}


def require(program, *words):
    """Ends the script where a program is missing, or so old that its --help does not know what the script will ask of it."""
    try:
        done = subprocess.run([BIN / program, "--help"], capture_output=True, text=True, timeout=60)
    except OSError as error:
        sys.exit(f"{BIN / program} does not start ({error.strerror}), expected the programs in ARBORIST_BIN, or a build: "
                 "cmake --preset release && cmake --build --preset release")
    lacking = [word for word in words if word not in done.stdout + done.stderr]
    if lacking:
        sys.exit(f"{BIN / program} (commit {commit()}) is too old for this script: its --help lacks {', '.join(lacking)}")
