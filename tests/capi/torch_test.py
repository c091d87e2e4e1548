#!/usr/bin/env python3
"""The C library driven from PyTorch tensors on a GPU: a whole round eagerly, inside a captured graph, and replayed with other
inputs, each step against plain Python and PyTorch; caches in pages of 64 and of 1 row. Without PyTorch or a GPU it prints
"skipped: ..." and ends with 0. --report=FILE writes {"passed", "failed", "skipped"} as JSON."""

import json
import pathlib
import random
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(ROOT / "tests")]

import reference  # noqa: E402
from arborist_kernels import KernelError, Library  # noqa: E402
from programs import BIN  # noqa: E402

try:
    import torch
    from speculation_round import Round, Shape
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    torch = None


def library():
    return Library(BIN.resolve().parent / "lib/libarborist_kernels.so", ROOT / "kernels/capi/arborist_kernels.h")


def expect(good, what):
    if not good:
        raise AssertionError(what)


def equal(actual, expected, what):
    expect(actual == expected, f"{what} is {actual}, expected {expected}")


class Check:
    """Every step of a round that has run, given what the step before it really wrote."""

    def __init__(self, round_, name):
        self.r, self.s, self.name = round_, round_.shape, name
        host = {key: value.cpu() for key, value in vars(round_).items() if isinstance(value, torch.Tensor)}
        self.h = host
        self.trees = range(self.s.trees)
        self.nodes = host["nodes"].tolist()
        self.tokens, self.parents = host["tree_token"].tolist(), host["tree_parent"].tolist()
        self.stride = self.s.budget + 1

    def all(self):
        self.candidates()
        self.built_trees()
        self.rows()
        self.attention()
        self.choices()
        self.accepted_and_compacted()

    def candidates(self):
        s, r = self.s, self.r
        for tree in self.trees:
            wish = r.top_k[tree]
            for depth in range(wish["depths"]):
                logits = self.h["draft_logits"][tree, depth].double()
                x = logits - logits.max()
                if wish["temperature"] > 0:
                    noise = reference.gumbel_row(wish["seed"], wish["sample_index"], wish["first_position"] + depth, s.vocabulary)
                    x = x / wish["temperature"] + torch.tensor(noise, dtype=torch.float64)
                ids = self.h["token"][tree, depth].long()
                best = x.topk(s.k).values
                # In fp32 noise is off by some 1e-6: near ties may swap, values may not.
                expect((x[ids] - best).abs().max() < 1e-4, f"{self.name}: candidates of tree {tree} depth {depth}")
                equal(len(set(ids.tolist())), s.k, f"{self.name}: distinct candidates")
                wanted = torch.log_softmax(x, 0)[ids]
                error = (self.h["log_prob"][tree, depth].double() - wanted).abs().max()
                expect(error < 1e-4, f"{self.name}: log_prob of tree {tree} depth {depth} is off by {error}")

    def built_trees(self):
        for tree in self.trees:
            wish = self.r.build[tree]
            token, log_prob = self.h["token"][tree].tolist(), self.h["log_prob"][tree].tolist()
            tokens, parents, scores = reference.build_tree(token, log_prob, **wish)
            count = self.nodes[tree]
            equal(count, len(tokens), f"{self.name}: nodes of tree {tree}")
            equal(self.tokens[tree][:count], tokens, f"{self.name}: tokens of tree {tree}")
            equal(self.parents[tree][:count], parents, f"{self.name}: parents of tree {tree}")
            equal(self.h["tree_score"][tree].tolist()[:count], scores, f"{self.name}: scores of tree {tree}")
        equal(self.h["build_error"].tolist(), [0] * self.s.trees, f"{self.name}: build errors")

    def row_keys(self, tree, node):
        """Position and slots of the row's keys; None for a padding row."""
        if node >= self.nodes[tree] or self.r.budgets[tree] == 0:
            return None
        slots = self.r.slot_of[self.r.rows_of_table[tree]]
        write = self.r.write[tree * self.stride : (tree + 1) * self.stride]
        return reference.keys_of(self.parents[tree], node, self.r.roots[tree], slots, write)

    def rows(self):
        blocks, counts, tails = (self.h[key].tolist() for key in ("prefix_blocks", "tail_count", "tail_slot"))
        sequences, positions = self.h["sequence"].tolist(), self.h["position"].tolist()
        for tree in self.trees:
            for node in range(self.stride):
                row, keys = tree * self.stride + node, self.row_keys(tree, node)
                actual = (sequences[row], positions[row], blocks[row], counts[row], tails[row])
                wanted = (0, 0, 0, 0, [-1] * reference.MAX_TAIL)
                if keys is not None:
                    first = reference.prefix_blocks(keys[0])
                    tail = keys[1][64 * first :]
                    wanted = (self.r.rows_of_table[tree], keys[0], first, len(tail),
                              tail + [-1] * (reference.MAX_TAIL - len(tail)))
                equal(actual, wanted, f"{self.name}: row {row}")

    def attention(self):
        s, r = self.s, self.r
        # bf16: query and weights are rounded to 8 bits, and outputs are means of values of about unit size.
        tolerance = 0.02 if s.cache == "bfloat16" else 2e-5
        for layer in range(s.layers):
            cache, out = r.before[layer], r.out[layer]
            for tree in self.trees:
                for node in range(self.stride):
                    row, keys = tree * self.stride + node, self.row_keys(tree, node)
                    if keys is None:
                        expect(not out[row].any(), f"{self.name}: padding row {row} is not zero")
                        continue
                    key = cache[torch.tensor(keys[1], device=cache.device)].double()
                    query = r.query[layer][row].to(cache.dtype).double()
                    weight = torch.softmax(query @ key.t() * r.scale, dim=-1)
                    wanted = weight @ key[:, : s.latent]
                    error = (out[row].double() - wanted).abs().max().item()
                    expect(error <= tolerance * max(1.0, wanted.abs().max().item()),
                           f"{self.name}: attention of row {row}, {len(keys[1])} keys, is off by {error}")

    def choices(self):
        logits, chosen = self.h["logits"], self.h["chosen"].tolist()
        log_prob, position = torch.log_softmax(logits.double(), 1), self.h["next_position"].tolist()
        for row in range(self.r.rows):
            if row % self.stride >= self.nodes[row // self.stride]:
                continue
            wrong = reference.check_choice(logits[row].tolist(), self.r.sampling[row // self.stride], position[row], chosen[row])
            expect(wrong is None, f"{self.name}: choice of row {row}: {wrong}")
            error = abs(self.h["chosen_log_prob"][row].item() - log_prob[row, chosen[row]].item())
            expect(error < 1e-4, f"{self.name}: log_prob of row {row} is off by {error}")
        expect(not self.h["sample_error"].any(), f"{self.name}: sample errors")

    def accepted_and_compacted(self):
        r, stride = self.r, self.stride
        wanted = [before.clone() for before in r.before]
        kept = [-1] * r.rows
        for tree in self.trees:
            begin, count = tree * stride, self.nodes[tree]
            chosen = self.h["chosen"][begin : begin + count].tolist()
            path = reference.accept(self.tokens[tree][:count], self.parents[tree][:count], chosen)
            equal(self.h["path_length"][tree].item(), len(path), f"{self.name}: accepted rows of tree {tree}")
            equal(self.h["path"][begin : begin + len(path)].tolist(), path, f"{self.name}: path of tree {tree}")
            equal(self.h["bonus"][tree].item(), chosen[path[-1]], f"{self.name}: bonus of tree {tree}")
            for j, node in enumerate(path):
                kept[begin + node] = r.write[begin + j]
                if r.write[begin + j] >= 0:
                    for plane, before in zip(wanted, r.before):
                        plane[r.write[begin + j]] = before[r.write[begin + node]]
        equal(self.h["accept_error"].tolist(), [0] * self.s.trees, f"{self.name}: accept errors")
        equal(self.h["kept_slot"].tolist(), kept, f"{self.name}: kept slots")
        for plane, actual in zip(wanted, r.cache + [r.extra]):
            expect(torch.equal(plane, actual), f"{self.name}: a plane after compaction")


def rounds():
    small = dict(heads=2, latent=24, rope=8, hidden=32)
    for page_rows in (64, 1):
        yield Shape(page_rows=page_rows)
        yield Shape(page_rows=page_rows, cache="float32", **small)
        yield Shape(page_rows=page_rows, trees=7, heads=8, latent=128, rope=32, budget=16, depths=3, positions=400)
    yield Shape(page_rows=1, trees=2, heads=64, budget=255, depths=15, k=16, positions=3000, layers=1)


def test_a_round_is_right_eagerly_in_a_graph_and_replayed_with_other_inputs(kernels):
    for shape in rounds():
        round_ = Round(kernels, shape, "cuda")
        stream = torch.cuda.Stream()
        accepted = 0
        with torch.cuda.stream(stream):
            round_.set_inputs(1, 1)
            round_.enqueue(stream)
            stream.synchronize()
            Check(round_, f"eager {shape}").all()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                round_.enqueue(torch.cuda.current_stream())
            for seed in random.sample(range(2, 1 << 20), 3):
                round_.set_inputs(seed, seed + 1)
                graph.replay()
                stream.synchronize()
                Check(round_, f"replay {seed} {shape}").all()
                accepted += int(round_.path_length.sum())
        print(f"  {shape.cache}, {shape.trees} trees of {shape.budget}, pages of {shape.page_rows}: {accepted} rows accepted "
              "in 3 replays", flush=True)


def test_a_result_does_not_depend_on_where_rows_lie(kernels):
    results = []
    for page_rows, layout in ((64, 1), (64, 2), (1, 3)):
        round_ = Round(kernels, Shape(page_rows=page_rows), "cuda")
        round_.set_inputs(5, layout)
        round_.enqueue(torch.cuda.current_stream())
        torch.cuda.synchronize()
        results.append([tensor.clone() for tensor in (*round_.out, round_.logits, round_.chosen, round_.path_length, round_.bonus)])
    for other in results[1:]:
        expect(all(torch.equal(a, b) for a, b in zip(results[0], other)), "bits differ between two layouts")


def test_compaction_of_more_than_512_moves_is_exact(kernels):
    slots, trees, stride = 4096, 40, 65
    plane = torch.randn(slots, 33, device="cuda")
    write = torch.randperm(slots)[: trees * stride].int().cuda()
    wanted, source, target = plane.clone(), [-1] * (trees * stride), [-1] * (trees * stride)
    slot = write.tolist()
    for tree in range(trees):
        path = sorted(random.sample(range(1, stride), 40))
        for j, node in enumerate(path, start=1):
            source[tree * stride + j], target[tree * stride + j] = slot[tree * stride + node], slot[tree * stride + j]
            wanted[slot[tree * stride + j]] = plane[slot[tree * stride + node]]
    kernels.call("kv_compact", torch.cuda.current_stream(), plane=torch.tensor([plane.data_ptr()]).cuda(),
                 row_bytes=torch.tensor([33 * 4]).cuda(), planes=1, max_row_bytes=33 * 4, slots=slots,
                 to=torch.tensor(target, dtype=torch.int32).cuda(), moves=trees * stride,
                 **{"from": torch.tensor(source, dtype=torch.int32).cuda()})
    expect(torch.equal(plane, wanted), "rows after compaction")


def test_bad_pointers_in_a_tree_end_in_its_error_flag(kernels):
    ints = lambda values: torch.tensor(values, dtype=torch.int32).cuda()  # noqa: E731
    parent = ints([-1, 0, 1, -1, 2, 1, -1, 0, 99, -1, 0, 0])  # a cycle, and an index far away
    token, chosen = ints([5, 6, 7] * 4), ints([6, 7, 8] * 4)
    path, length, bonus, error = ints([0] * 12), ints([9] * 4), ints([9] * 4), ints([9] * 4)
    kernels.call("tree_accept", torch.cuda.current_stream(), trees=4, rows=12, tree_begin=ints([0, 3, 6, 9, 12]), nodes=None,
                 token=token, parent=parent, chosen=chosen, path=path, path_length=length, bonus=bonus, error=error)
    equal(error.tolist(), [0, 1, 1, 0], "errors")
    equal(length.tolist(), [3, 0, 0, 2], "path lengths")
    equal(bonus.tolist(), [8, -1, -1, 7], "bonus")


def test_refused_calls_say_why(kernels):
    round_ = Round(kernels, Shape(trees=1, budget=3, positions=64), "cuda")
    round_.attention_scratch = round_.attention_scratch[:256]
    round_.set_inputs(1, 1)
    try:
        round_.enqueue(torch.cuda.current_stream())
    except KernelError as error:
        expect("scratch_bytes=256, expected at least" in str(error), str(error))
    else:
        raise AssertionError("too little scratch was taken")
    torch.cuda.synchronize()


def main():
    report = next((argument[9:] for argument in sys.argv[1:] if argument.startswith("--report=")), None)
    wanted = next((argument[9:] for argument in sys.argv[1:] if argument.startswith("--filter=")), "")
    if torch is None or not torch.cuda.is_available():
        print("skipped: " + ("no PyTorch" if torch is None else "no CUDA device"))
        counts = {"passed": 0, "failed": [], "skipped": 1}
    else:
        counts = {"passed": 0, "failed": [], "skipped": 0}
        kernels = library()
        for name, test in list(globals().items()):
            if not name.startswith("test_") or wanted not in name:
                continue
            begin = time.monotonic()
            try:
                test(kernels)
                counts["passed"] += 1
                print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
            except Exception as error:  # noqa: BLE001: one test's failure is reported, the others run
                counts["failed"].append(name)
                print(f"FAILED {name}: {type(error).__name__}: {str(error)[:2000]}", flush=True)
    if report:
        pathlib.Path(report).write_text(json.dumps(counts))
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
