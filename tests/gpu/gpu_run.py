#!/usr/bin/env python3
"""Runs the GPU tests or benches and writes tests/gpu/results/<mode>.json; see run.sh."""

import concurrent.futures
import datetime
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import sanitizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from programs import BIN, commit  # noqa: E402

RESULTS = pathlib.Path(os.environ.get("ARBORIST_GPU_RESULTS", ROOT / "tests/gpu/results"))
# Every mode ends in under 9 minutes, or sooner where a machine is lent for less.
MODE_SECONDS = float(os.environ.get("ARBORIST_GPU_SECONDS", 530))
GATE_TESTS = ("gate_test", "gate_faults_cuda_test")
CHECKS_AT_ONCE = min(6, os.cpu_count() or 1)
ALONE = ("device_memory_cuda_test", "device_failure_cuda_test")  # they look at the GPU's free memory, or take nearly all of it
PAIR_GATE_SECONDS = 330
PAIR_GATE_JOBS = 8
# Of --check too, after all others; each takes --report=FILE. With how many tests must pass: PyTorch may be missing.
PYTHON_TESTS = {"tests/capi/torch_test.py": 0, "tests/pipeline/device_failure_test.py": 1}
# Beside the programs, in a build and in a bundle.
LIBRARIES = ("../lib/libarborist_kernels.so",)


def programs(kind):
    """The names that CMake listed: cuda_tests.txt or cuda_benches.txt beside the programs."""
    listing = BIN / f"cuda_{kind}.txt"
    if not listing.exists():
        sys.exit(f"{listing} is missing, expected a build with CUDA: cmake --preset release && cmake --build --preset release")
    return [name for name in listing.read_text().split() if (BIN / name).exists()]


def device():
    try:
        line = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=True,
                              capture_output=True, text=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None
    return line.strip()


def binary_hash(names):
    digest = hashlib.sha256()
    for name in sorted([*names, *(library for library in LIBRARIES if (BIN / library).exists())]):
        digest.update((BIN / name).read_bytes())
    return digest.hexdigest()[:16]


def environment():
    return dict(os.environ, ARBORIST_SOURCE_DIR=str(ROOT), ARBORIST_BIN=str(BIN.resolve()), ARBORIST_BINARY_DIR=str(BIN.resolve().parent))


def run(command, timeout):
    # A session of its own, so that a sanitizer's program ends with it.
    process = subprocess.Popen([str(part) for part in command], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", start_new_session=True)
    try:
        output = process.communicate(timeout=max(1, timeout))[0]
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return 124, process.communicate()[0]


def counts(report):
    """Passed, failed and skipped test cases of one GoogleTest JSON report."""
    passed, failed, skipped = 0, [], 0
    for suite in report["testsuites"]:
        for case in suite["testsuite"]:
            name = f'{suite["name"]}.{case["name"]}'
            if case.get("failures"):
                failed.append(name)
            elif case.get("result") == "SKIPPED":
                skipped += 1
            else:
                passed += 1
    return passed, failed, skipped


def judge(name, code, counted, seconds, output, least=1):
    """Prints one program's line, and its output where it failed; returns whether it is good, and its row. A program of which
    less than `least` passed is not good: there is a GPU, so nothing may skip all it has."""
    passed, failed, skipped = counted
    good = code == 0 and not failed and passed >= least
    print(f'{"ok    " if good else "FAILED"} {name}: {passed} passed, {len(failed)} failed, {skipped} skipped, '
          f"{seconds:.1f} s", flush=True)
    if not good:
        print(output[-3000:], flush=True)
    return good, {"program": name, "exit": code, "passed": passed, "failed": failed, "skipped": skipped,
                  "seconds": round(seconds, 2)}


def timed(command, report, deadline):
    """Exit code, what `report` then holds (None without one), seconds and output."""
    begin = time.monotonic()
    code, output = run(command, deadline - begin)
    data = json.loads(report.read_text()) if report.exists() else None
    return code, data, time.monotonic() - begin, output


def check_one(deadline, name, extra):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        code, data, seconds, output = timed([BIN / name, f"--gtest_output=json:{report}", *extra], report, deadline)
    return judge(name, code, counts(data) if data else (0, ["no report"], 0), seconds, output)


def check(deadline, names, extra=()):
    # Several at once: most of a test's time is the oracle's, on the host.
    alone = [name for name in names if name in ALONE]
    done = [check_one(deadline, name, extra) for name in alone]
    with concurrent.futures.ThreadPoolExecutor(CHECKS_AT_ONCE) as pool:
        done += pool.map(lambda name: check_one(deadline, name, extra), [name for name in names if name not in alone])
    return all(good for good, _ in done), [row for _, row in done]


def check_reporting(deadline, name, command, least=1):
    """A program of ours that writes {"passed", "failed", "skipped"} itself, with --report=FILE."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        code, data, seconds, output = timed([*command, f"--report={report}"], report, deadline)
    counted = (data["passed"], data["failed"], data["skipped"]) if data else (0, ["no report"], 0)
    good, row = judge(name, code, counted, seconds, output, least)
    return good, row, output


def check_python(deadline):
    done = [check_reporting(deadline, name, [sys.executable, ROOT / name], least) for name, least in PYTHON_TESTS.items()]
    return all(good for good, _, _ in done), [row for _, row, _ in done]


def gate(deadline):
    """The random model's whole product, the planted faults, and as much of the pair's product as the time allows."""
    ok, rows = check(deadline, GATE_TESTS, extra=["--gtest_filter=*Cuda*"])
    seconds = int(min(PAIR_GATE_SECONDS, deadline - time.monotonic() - 20))
    command = [BIN / "pair_gate", "--device", "cuda", "--exhaustive", "--jobs", PAIR_GATE_JOBS, "--seconds", seconds]
    good, row, output = check_reporting(deadline, "pair_gate", command)
    print(output if good else "", flush=True)
    return ok and good, [*rows, dict(row, summary=(output.strip().splitlines() or [""])[-1])]


def sanitize(deadline):
    if shutil.which("compute-sanitizer") is None:
        sys.exit("compute-sanitizer is missing, expected it on the PATH (it comes with the CUDA toolkit)")
    return sanitizers.sanitize([BIN / name for name in programs("tests")], environment(), deadline)


def bench(deadline):
    ok, figures = True, []
    for name in programs("benches"):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "figures.json"
            code, output = run([BIN / name, f"--json={report}"], deadline - time.monotonic())
            print(output, flush=True)
            if code != 0 or not report.exists():
                ok = False
                print(f"FAILED {name}: exit {code}", flush=True)
                continue
            data = json.loads(report.read_text())
        for figure in data["figures"]:
            figures.append(dict(figure, bench=name))
        figures.append({"bench": name, "kernel": "control", "shape": "copy of 1 GiB, TB/s",
                        "microseconds": data["copy_bytes_per_second"] / 1e12})
        figures.append({"bench": name, "kernel": "control", "shape": "empty kernel in a graph",
                        "microseconds": data["empty_launch_microseconds"]})
        figures.append({"bench": name, "kernel": "control", "shape": "cuBLAS bf16 8192 x 8192 x 8192, TFLOP/s",
                        "microseconds": data.get("cublas_flops", 0) / 1e12})
    return ok, figures


def main():
    modes = ("--check", "--sanitize", "--gate", "--bench")
    if len(sys.argv) != 2 or sys.argv[1] not in modes:
        sys.exit("usage: tests/gpu/run.sh " + " | ".join(modes))
    mode = sys.argv[1][2:]
    card = device()
    if card is None:
        print("skipped: no CUDA device")
        return
    begin = time.monotonic()
    deadline = begin + MODE_SECONDS
    if mode == "check":
        names = programs("tests")
        ok, rows = check(deadline, names)
        python_ok, python_rows = check_python(deadline)
        ok, rows = ok and python_ok, rows + python_rows
    elif mode == "sanitize":
        names = programs("tests")
        ok, rows = sanitize(deadline)
    elif mode == "gate":
        names = [*GATE_TESTS, "pair_gate"]
        ok, rows = gate(deadline)
    else:
        names = programs("benches")
        ok, rows = bench(deadline)
    RESULTS.mkdir(parents=True, exist_ok=True)
    result = {"mode": mode, "command": f"tests/gpu/run.sh --{mode}", "commit": commit(), "binaries": binary_hash(names),
              "device": card, "date": datetime.date.today().isoformat(), "ok": ok,
              "seconds": round(time.monotonic() - begin, 1)}
    if mode == "sanitize":
        left_out = {name: reason for name, reason in sanitizers.LEFT_OUT.items() if name.split()[0] in names}
        result.update(ok_means=sanitizers.OK_MEANS, left_out=left_out, filters=sanitizers.FILTERS, filters_mean=sanitizers.FILTERS_MEAN,
                      gpus=len(sanitizers.gpus(environment())))
    result["rows"] = rows
    (RESULTS / f"{mode}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{mode}: {'ok' if ok else 'FAILED'} in {result['seconds']} s on {card}, commit {result['commit']}")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
