#!/usr/bin/env python3
"""Tree building by a Python heapq loop, by the C library on the CPU, and by its GPU kernel, for the same candidates:

    tests/capi/tree_build_bench.py [--json=FILE]

Python and CPU: one thread, all streams one after another, best of 5 means (the CPU's include some 4 us of ctypes). GPU: one launch for all streams, median of 50
replays of a graph that holds a launch for each of 64 input sets, launch gaps inside, divided by 64. The trees of all three are
compared first."""

import datetime
import heapq
import json
import pathlib
import statistics
import sys
import time

try:
    import torch
except ModuleNotFoundError:
    torch = None

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "gpu")]
from gpu_run import LIBRARIES, binary_hash, commit, device  # noqa: E402
from reference import build_tree  # noqa: E402
from torch_test import expect, library  # noqa: E402

BUDGETS = (8, 16, 32, 64, 128, 255)  # a tree's most nodes beside its root, on the wire too
SETS = 64
VOCABULARY = 4096


def heap_tree(token, log_prob, root, budget):
    """What an engine's host code would do: tokens and parents; equal scores in any order."""
    tokens, parents = [root], [-1]
    heap, order, depths, k = [(-log_prob[0][0], 0, 0, 0, 0)], 1, len(token), len(token[0])
    while heap and len(tokens) <= budget:
        cost, _, parent, depth, rank = heapq.heappop(heap)
        node = len(tokens)
        tokens.append(token[depth][rank])
        parents.append(parent)
        if rank + 1 < k:
            heapq.heappush(heap, (cost + log_prob[depth][rank] - log_prob[depth][rank + 1], order, parent, depth, rank + 1))
        if depth + 1 < depths:
            heapq.heappush(heap, (cost - log_prob[depth + 1][0], order + 1, node, depth + 1, 0))
        order += 2
    return tokens, parents


def candidates(streams, depths, k, seed):
    """Of a drafter of middling confidence."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(streams, depths, VOCABULARY, generator=generator) * 2.5
    values, ids = torch.log_softmax(logits, -1).topk(k)
    return ids.int().contiguous(), values.contiguous()


def call_fields(kernels, token, log_prob, budget, device):
    streams, depths, k = token.shape
    params = kernels.params("tree_build_params", [dict(root=1, depths=depths, k=k, budget=budget)] * streams)
    ints = lambda *size: torch.zeros(*size, dtype=torch.int32, device=device)  # noqa: E731
    return dict(streams=streams, max_depths=depths, max_k=k, max_budget=budget,
                params=torch.frombuffer(bytearray(params), dtype=torch.uint8).to(device), token=token.to(device),
                log_prob=log_prob.to(device), out_token=ints(streams, budget + 1), out_parent=ints(streams, budget + 1),
                out_score=torch.zeros(streams, budget + 1, device=device), out_nodes=ints(streams), error=ints(streams))


def mean_microseconds(body):
    """The best of five means of about 20 ms each."""
    begin = time.perf_counter()
    body()
    repeats = max(1, int(0.02 / max(time.perf_counter() - begin, 1e-6)))
    means = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(repeats):
            body()
        means.append((time.perf_counter() - begin) / repeats)
    return min(means) * 1e6


def gpu_microseconds(kernels, sets):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kernels.call("tree_build", stream, **sets[0])
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for fields in sets:
                kernels.call("tree_build", stream, **fields)
        times = []
        for i in range(53):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if i >= 3:
                times.append(begin.elapsed_time(end) * 1000 / len(sets))
    return statistics.median(times)


def measure(kernels, streams, depths, budget):
    k = min(budget, 64)
    token, log_prob = candidates(streams, depths, k, 1)
    host = call_fields(kernels, token, log_prob, budget, "cpu")
    kernels.call_host("tree_build", **host)
    sets = [call_fields(kernels, *candidates(streams, depths, k, seed), budget, "cuda") for seed in range(1, SETS + 1)]
    kernels.call("tree_build", torch.cuda.current_stream(), **sets[0])
    for field in ("out_token", "out_parent", "out_score", "out_nodes"):
        expect(torch.equal(host[field], sets[0][field].cpu()), f"{field} of {streams} streams, budget {budget}: GPU and CPU differ")
    token, log_prob = token.tolist(), log_prob.tolist()
    for stream in range(streams):  # the exact builder; heap_tree takes equal scores in another order
        tokens, parents, _ = build_tree(token[stream], log_prob[stream], 1, depths, k, budget)
        wanted = (host["out_token"][stream].tolist(), host["out_parent"][stream].tolist())
        expect((tokens, parents) == wanted, f"stream {stream}: Python and CPU differ")
        expect(len(heap_tree(token[stream], log_prob[stream], 1, budget)[0]) == len(tokens), f"stream {stream}: heapq's nodes")
    return {"streams": streams, "depths": depths, "k": k, "budget": budget,
            "python_us": round(mean_microseconds(lambda: [heap_tree(t, l, 1, budget) for t, l in zip(token, log_prob)]), 2),
            "cpu_us": round(mean_microseconds(lambda: kernels.call_host("tree_build", **host)), 2),
            "gpu_us": round(gpu_microseconds(kernels, sets), 2)}


def main():
    if torch is None or not torch.cuda.is_available():
        print("skipped: no PyTorch" if torch is None else "skipped: no CUDA device")
        return
    kernels, rows = library(), []
    print(f"{torch.cuda.get_device_name()}\n{'streams':>8}{'depths':>8}{'k':>5}{'budget':>8}{'heapq us':>12}{'CPU us':>10}{'GPU us':>10}")
    for streams in (1, 64):
        for depths in (7, 15):
            for budget in BUDGETS:
                row = measure(kernels, streams, depths, budget)
                rows.append(row)
                print(f"{streams:8}{depths:8}{row['k']:5}{budget:8}{row['python_us']:12.1f}{row['cpu_us']:10.1f}{row['gpu_us']:10.2f}",
                      flush=True)
    path = next((argument[7:] for argument in sys.argv[1:] if argument.startswith("--json=")), None)
    if path:
        head = {"command": "tests/capi/tree_build_bench.py --json=FILE", "commit": commit(),
                "binaries": binary_hash(LIBRARIES), "device": device(), "date": datetime.date.today().isoformat()}
        lines = ",\n  ".join(json.dumps(row) for row in rows)
        pathlib.Path(path).write_text(json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n  ' + lines + "\n ]\n}\n")


if __name__ == "__main__":
    main()
