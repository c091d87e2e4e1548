"""Runs GoogleTest programs under compute-sanitizer, which makes a test ten to a thousand times slower. A test in which nothing
happens for a while is stopped and left out, and so is what a program has not begun when its time is over; both are told."""

import concurrent.futures
import os
import re
import signal
import subprocess
import threading
import time

TOOLS = ("memcheck", "racecheck", "initcheck")
AT_ONCE = 12
TEST_SECONDS = 25
PROGRAM_SECONDS = 70
FAULTS_ON_PURPOSE = ("device_failure_cuda_test",)
QUIET = re.compile(r"========= (COMPUTE-SANITIZER|ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards|LEAK SUMMARY: 0|$)")
BEGAN = re.compile(r"\[ RUN      \] (\S+)")
ENDED = re.compile(r"\[ +(OK|FAILED|SKIPPED) \] ([^\s,]+).*\(\d+ ms\)")
COUNT = re.compile(r"\[==========\] Running (\d+) tests?")


class Attempt:
    """One start of a program, until it ends by itself, a test stands still, or time is over."""

    def __init__(self, command, environment, deadline):
        self.lines, self.running, self.results, self.last = [], None, {}, time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", start_new_session=True)
        reader = threading.Thread(target=self.read, args=(process.stdout,))
        reader.start()
        self.code = None
        while self.code is None and time.monotonic() < min(deadline, self.last + TEST_SECONDS):
            time.sleep(0.05)
            self.code = process.poll()
        if self.code is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join()

    def read(self, stream):
        for line in stream:
            self.lines.append(line.rstrip())
            self.last = time.monotonic()
            if began := BEGAN.match(line):
                self.running = began[1]
            elif ended := ENDED.match(line):
                self.running, self.results[ended[2]] = None, ended[1]

    def complaints(self):
        """What the tool said; a program that was stopped has no exit code that would tell."""
        return [line for line in self.lines if line.startswith("=========") and not QUIET.match(line)]


def sanitize_one(tool, program, environment, deadline, seconds):
    deadline = min(deadline, time.monotonic() + seconds)
    begin, results, left_out, complaints, code, tests = time.monotonic(), {}, [], [], None, 0
    while code is None and time.monotonic() < deadline:
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "99", "--print-limit", "3", str(program),
                   "--gtest_filter=-" + ":".join([*results, *left_out])]
        attempt = Attempt(command, environment, deadline)
        tests = tests or max((int(count[1]) for line in attempt.lines if (count := COUNT.match(line))), default=0)
        results.update(attempt.results)
        complaints += attempt.complaints()
        code = attempt.code
        if code is None and attempt.running is None and not attempt.results:
            break  # it does not even begin
        if code is None and attempt.running is not None:
            left_out.append(attempt.running)
    passed = sum(result == "OK" for result in results.values())
    failed = [name for name, result in results.items() if result == "FAILED"]
    return {"program": program.name, "tool": tool, "exit": code, "passed": passed, "failed": failed,
            "skipped": sum(result == "SKIPPED" for result in results.values()), "too_slow": left_out,
            "not_begun": max(0, tests - len(results) - len(left_out)), "complaints": complaints[:20],
            "seconds": round(time.monotonic() - begin, 2)}


def good(row):
    return row["exit"] in (0, None) and row["passed"] > 0 and not row["failed"] and not row["complaints"]


def sanitize(programs, environment, deadline):
    """Every program under every tool, the largest first; whether all are good, and a row for each."""
    programs = sorted((program for program in programs if program.name not in FAULTS_ON_PURPOSE),
                      key=lambda program: -program.stat().st_size)

    jobs = [(tool, program) for program in programs for tool in TOOLS]
    # Where time is short every program has its share of it.
    seconds = min(PROGRAM_SECONDS, (deadline - time.monotonic()) * AT_ONCE / max(1, len(jobs)))

    def one(job):
        row = sanitize_one(*job, environment, deadline, seconds)
        print(f'{"ok    " if good(row) else "FAILED"} {row["tool"]} {row["program"]}: {row["passed"]} passed, '
              f'{len(row["failed"])} failed, {len(row["too_slow"])} too slow, {row["not_begun"]} not begun, {row["seconds"]:.1f} s',
              flush=True)
        if not good(row):
            print("\n".join([*row["failed"], *row["complaints"]]), flush=True)
        return row

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(one, jobs))
    return all(good(row) for row in rows), rows
