"""Runs GoogleTest programs under compute-sanitizer, which makes a test ten to a thousand times slower: on small shapes
(kernels/testing/small_shapes.h), a few at once on each GPU, the small programs first. More at once take as long: processes have a
GPU by turns, and under MPS the tools find no device. Each program has a share of the time. A test that takes half of its program's
is stopped and named, and what a program has not begun at the end is counted; neither is ok."""

import concurrent.futures
import os
import queue
import re
import signal
import subprocess
import threading
import time

TOOLS = ("memcheck", "racecheck", "initcheck")
AT_ONCE = int(os.environ.get("ARBORIST_SANITIZERS_AT_ONCE", 6))  # on a GPU
SLOW_SECONDS = 5  # told in the result
LAST_LINES = 20  # of a program that ended with an error: only it knows why
LEAST_SHARE = 0.4  # of the time, for a program
FILTERS_MEAN = ("the tests of these programs launch the same kernels one after the other, so that a few of them are run; racecheck, which "
                "looks at one kernel at a time, has recorded steps of both kinds, plain and controlled, in SmallSteps")
FILTERS = {"gate_faults_cuda_test": "*WithoutAFault*:*TreeRowsLeftOut*",
           "shadow_cuda_test": "*WithoutAFault*/BF16:*TreeRowsLeftOut*/BF16",
           "device_exactness_cuda_test": "*SelfTest*:*KvBytes*:*EveryNode*:*SmallSteps*",
           "device_exactness_cuda_test under racecheck": "*SmallSteps*"}
PLANTED = "plants an illegal access, a failed launch or a lack of memory: complaints are what it is for"
LEFT_OUT = dict.fromkeys(("device_failure_cuda_test", "device_memory_cuda_test", "kernel_overlap_cuda_test"), PLANTED) | {
    "shadow_cuda_test under racecheck": "racecheck looks at one kernel at a time, and these are the kernels of other programs"}
OK_MEANS = ("every test of every program but those in left_out and those that filters leave out ended under every tool, on small "
            "shapes, none failed and no tool complained")
QUIET = re.compile(r"========= (COMPUTE-SANITIZER|ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards|LEAK SUMMARY: 0|$)")
BEGAN = re.compile(r"\[ RUN      \] (\S+)")
ENDED = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+).*\((\d+) ms\)")
COUNT = re.compile(r"\[==========\] Running (\d+) tests?")


class Attempt:
    """One start of a program, until it ends by itself, a test stands still, or time is over."""

    def __init__(self, command, environment, deadline, test_seconds):
        self.lines, self.running, self.results, self.seconds, self.last = [], None, {}, {}, time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", start_new_session=True)
        reader = threading.Thread(target=self.read, args=(process.stdout,))
        reader.start()
        self.code = None
        while self.code is None and time.monotonic() < min(deadline, self.last + test_seconds):
            time.sleep(0.05)
            self.code = process.poll()
        if self.code is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join()
        process.stdout.close()

    def read(self, stream):
        for line in stream:
            self.lines.append(line.rstrip())
            self.last = time.monotonic()
            if began := BEGAN.match(line):
                self.running = began[1]
            elif ended := ENDED.match(line):
                self.running, self.results[ended[2]], self.seconds[ended[2]] = None, ended[1], int(ended[3]) / 1000

    def complaints(self):
        """What the tool said; a program that was stopped has no exit code that would tell."""
        return [line for line in self.lines if line.startswith("=========") and not QUIET.match(line)]


def of_tool(table, tool, program):
    """What the table says of the program under this tool, or else under any."""
    return table.get(f"{program.name} under {tool}", table.get(program.name))


def sanitize_one(tool, program, environment, deadline, seconds):
    deadline = min(deadline, time.monotonic() + seconds)
    begin, results, times, left_out, complaints, code, tests = time.monotonic(), {}, {}, [], [], None, 0
    last_words = []
    while code is None and time.monotonic() < deadline:
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "99", "--print-limit", "3", str(program),
                   f'--gtest_filter={of_tool(FILTERS, tool, program) or "*"}-' + ":".join([*results, *left_out])]
        attempt = Attempt(command, environment, deadline, seconds / 2)
        tests = tests or max((int(count[1]) for line in attempt.lines if (count := COUNT.match(line))), default=0)
        results.update(attempt.results)
        times.update(attempt.seconds)
        complaints += attempt.complaints()
        code = attempt.code
        if code:
            last_words = [f"ended in {attempt.running or 'no test'}", *attempt.lines[-LAST_LINES:]]
        if code is None and attempt.running is None and not attempt.results:
            break  # it does not even begin
        if code is None and attempt.running is not None:
            left_out.append(attempt.running)
    passed = sum(result == "OK" for result in results.values())
    failed = [name for name, result in results.items() if result == "FAILED"]
    return {"program": program.name, "tool": tool, "exit": code, "passed": passed, "failed": failed,
            "skipped": sum(result == "SKIPPED" for result in results.values()), "too_slow": left_out,
            "not_begun": max(0, tests - len(results) - len(left_out)), "complaints": complaints[:20], "last_words": last_words,
            "seconds": round(time.monotonic() - begin, 2), "slow_tests": {name: took for name, took in times.items() if took >= SLOW_SECONDS}}


def good(row):
    return (row["exit"] == 0 and row["passed"] > 0 and not row["failed"] and not row["complaints"] and not row["too_slow"] and
            row["not_begun"] == 0)


def gpus(environment):
    """What CUDA_VISIBLE_DEVICES may be, for each GPU."""
    if visible := environment.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return [str(index) for index in range(max(1, len(re.findall(r"^GPU \d+:", listed, re.MULTILINE))))]


def sanitize(programs, environment, deadline):
    """Every program under every tool; whether all are good, and a row for each."""
    programs = sorted(programs, key=lambda program: program.stat().st_size)
    tools = sorted(TOOLS, key=lambda tool: tool != "racecheck")  # the slowest first, so that no large program is alone at the end
    jobs = [(tool, program) for program in programs for tool in tools if of_tool(LEFT_OUT, tool, program) is None]
    devices, ended, whole = queue.SimpleQueue(), [], deadline - time.monotonic()
    for gpu in gpus(environment) * AT_ONCE:
        devices.put(gpu)
    at_once = devices.qsize()

    def one(job):
        share = (deadline - time.monotonic()) * at_once / max(at_once, len(jobs) - len(ended))
        gpu = devices.get()
        row = sanitize_one(*job, dict(environment, ARBORIST_SMALL_SHAPES="1", CUDA_VISIBLE_DEVICES=gpu), deadline,
                           max(LEAST_SHARE * whole, share))
        devices.put(gpu)
        ended.append(job)
        print(f'{"ok    " if good(row) else "FAILED"} {row["tool"]} {row["program"]}: {row["passed"]} passed, '
              f'{len(row["failed"])} failed, {len(row["too_slow"])} too slow, {row["not_begun"]} not begun, {row["seconds"]:.1f} s',
              flush=True)
        if not good(row):
            print("\n".join([*row["failed"], *row["too_slow"], *row["complaints"], *row["last_words"]]), flush=True)
        return row

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        rows = list(pool.map(one, jobs))
    return all(good(row) for row in rows), rows
