#!/usr/bin/env python3
"""Arrows point down: reads every #include of ours and fails on one that a room may not have.

Also checks what the style promises of every source file: at most 400 lines, no .pb.h outside the edges, no stray macros.
Run with --self-test to plant violations in memory and see each of them found.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# What each room may include besides itself. A prefix covers the folders below it.
ALLOWED = {
    "common/base": [],
    "common/tensor": ["common/base"],
    "common/threads": ["common/base"],
    "common/device": ["common/base", "common/tensor", "common/threads"],
    "common/tree": ["common/base"],
    "common/comm": ["common/base", "common/tensor", "common/threads"],
    "common/json": ["common/base"],
    "common/weights": ["common/base", "common/tensor", "common/json"],
    "common/projection": ["common/base", "common/tensor", "common/weights", "common/json"],
    "common/tokenizer": ["common/base", "common/json"],
    "common/grammar": ["common/base", "common/tokenizer"],
    "common/metrics": ["common/base"],
    "common/log": ["common/base"],
    "common/rpc": ["common/base", "common/log", "common/tensor", "common/threads", "common/tree", "common/device", "proto"],
    "kernels": ["common/base", "common/tensor", "common/threads", "common/device"],
    "verifier": ["kernels", "common", "proto"],
    "drafter": ["kernels", "common", "proto"],
    "coordinator": ["common/base", "common/tokenizer", "common/json", "common/log", "common/metrics", "common/rpc", "proto"],
    "tests": ["verifier", "drafter", "coordinator", "kernels", "common", "proto"],
}
# A test of a kernel or of a common room may use a reader of golden files and the tree type.
TEST_EXTRA = ["common/weights", "common/json", "common/tree"]

# Files that may name protobuf messages of ours.
EDGE = re.compile(
    r"^(common/rpc/|tests/|(verifier|drafter|coordinator)/(cli/)?"
    r"(main|service|.*_service|.*_client|.*_stream|.*_reactor|.*_codec|config|.*_config|cli.*|.*_edge|.*_wire|testing/.*|.*_test)\.(h|cc)$"
    r"|coordinator/cli/)")
PB_INCLUDE = re.compile(r"\.pb\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
MAX_LINES = 400


def room_of(path):
    best = ""
    for room in ALLOWED:
        if path.startswith(room + "/") and len(room) > len(best):
            best = room
    return best


def violations(path, text):
    found = []
    room = room_of(path)
    lines = text.count("\n")
    if lines > MAX_LINES:
        found.append(f"{path}: {lines} lines, at most {MAX_LINES}")
    if not room:
        found.append(f"{path}: stands in no room")
        return found
    is_test = "_test.cc" in path or "/testing/" in path or "_bench.cc" in path
    for include in INCLUDE.findall(text):
        if PB_INCLUDE.search(include):
            if include.startswith("google/protobuf/"):
                continue  # protobuf the library
            if not EDGE.match(path):
                found.append(f"{path}: includes {include}, but only common/rpc and a service's edge may")
            continue
        target = room_of(include)
        if not target:
            continue  # a header of an outside library, or beside the file
        if target == room:
            continue
        allowed = ALLOWED[room] + (TEST_EXTRA if is_test else [])
        if not any(target == a or target.startswith(a + "/") for a in allowed):
            found.append(f"{path}: includes {include}, but {room} may use only {', '.join(allowed) or 'itself'}")
    return found


def tracked():
    try:
        out = subprocess.run(["git", "-C", ROOT, "ls-files", "*.h", "*.cc", "*.cu", "*.cuh"], capture_output=True, text=True)
        if out.returncode == 0 and out.stdout:
            return out.stdout.split()
    except FileNotFoundError:  # a machine without git
        pass
    found = []  # a source archive
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if not f.startswith((".", "build"))]
        found += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files if f.endswith((".h", ".cc", ".cu", ".cuh"))]
    return found


def self_test():
    planted = {
        "kernels/a/a.cc": '#include "verifier/verifier.h"\n',
        "common/base/b.h": '#include "common/tree/token_tree.h"\n',
        "drafter/d.cc": '#include "verifier/verifier.h"\n',
        "coordinator/c.cc": '#include "kernels/linear/linear.h"\n',
        "verifier/scheduler.cc": '#include "proto/arborist/v1/verifier.pb.h"\n',
        "kernels/a/long.cc": "\n" * (MAX_LINES + 1),
        "somewhere/x.cc": "\n",
    }
    for path, text in planted.items():
        if not violations(path, text):
            sys.exit(f"planted violation not found: {path}")
    if violations("verifier/v.cc", '#include "kernels/linear/linear.h"\n#include "common/tree/token_tree.h"\n'):
        sys.exit("a downward arrow was refused")


def main():
    self_test()
    found = []
    files = tracked()
    for path in files:
        full = os.path.join(ROOT, path)
        if os.path.exists(full):
            with open(full, encoding="utf-8") as file:
                found += violations(path, file.read())
    for line in found:
        print(line)
    print(f"layering: {len(files)} files, {len(found)} violations")
    sys.exit(1 if found or not files else 0)


if __name__ == "__main__":
    main()
