"""Writes the draft-tree cases.

    python make_tree_cases.py --out tree_build
"""

import argparse
import itertools
import json
import pathlib

import numpy as np
import safetensors.numpy

import reference_tree

VOCABULARY = 5000


def log_softmax(logits):
    """float32 log-probabilities of float64 logits."""
    shifted = logits - logits.max(-1, keepdims=True)
    return (shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))).astype(np.float32)


def candidates(generator, depth, ranks, spread):
    """The best `ranks` of random distributions. The spread decides whether the tree is a chain or a bush."""
    spread = np.broadcast_to(np.asarray(spread, float), (depth,))[:, None]
    log_probs = log_softmax(generator.normal(size=(depth, VOCABULARY)) * spread)
    order = np.argsort(-log_probs, -1, kind="stable")[:, :ranks]
    return np.take_along_axis(log_probs, order, -1), order


def tokens(generator, depth, ranks):
    return np.stack([generator.permutation(VOCABULARY)[:ranks] for _ in range(depth)])


def cases():
    """Yields (what the case shows, budget, log_prob, token, dense or None)."""
    g = np.random.default_rng(7)
    for budget in (1, 2, 7, 8, 16, 32, 63, 64, 128, 255):
        yield f"random, budget {budget}", budget, *candidates(g, 7, min(budget, 64), 7.0), None
    yield "random, depth 15", 100, *candidates(g, 15, 32, 12.0), None
    yield "flat: all nodes at depth 1 and 2", 128, *candidates(g, 7, 64, 0.3), None
    yield "peaked: the spine and little else", 64, *candidates(g, 7, 16, 30.0), None
    yield "confidence falling with depth", 128, *candidates(g, 7, 32, np.linspace(20, 2, 7)), None
    yield "confidence rising with depth", 128, *candidates(g, 7, 32, np.linspace(2, 20, 7)), None
    yield "depth 63", 255, *candidates(g, 63, 4, 80.0), None
    yield "one depth, fewer candidates than budget", 255, *candidates(g, 1, 3, 2.0), None
    yield "one depth, more candidates than budget", 5, *candidates(g, 1, 8, 2.0), None
    yield "one candidate: a chain shorter than budget", 64, *candidates(g, 7, 1, 3.0), None
    yield "one candidate: a chain cut by budget", 3, *candidates(g, 7, 1, 3.0), None
    yield "one depth, one candidate", 1, *candidates(g, 1, 1, 3.0), None
    yield "exhausted: 2 + 4 + 8 nodes", 255, *candidates(g, 3, 2, 2.0), None
    yield "budget 0: the root alone", 0, *candidates(g, 2, 2, 2.0), None
    yield "all scores of a depth equal", 40, np.full((4, 4), -np.log(4), np.float32), tokens(g, 4, 4), None
    yield "certain candidates: children as good as their parents", 24, np.array(
        [[0, -2, -4]] * 5, np.float32), tokens(g, 5, 3), None
    yield "every log-probability zero", 30, np.zeros((6, 3), np.float32), tokens(g, 6, 3), None
    for step in (1.0, 0.5, 0.25):
        quantised = -np.sort(np.round(g.exponential(2.0, (6, 8)) / step) * step, -1)
        yield f"scores that are multiples of {step}", 60, quantised.astype(np.float32), tokens(g, 6, 8), None
    # Neighbouring floats at every depth: sums differ in bits that float32 accumulation would lose.
    base = np.linspace(-0.7, -3, 8, dtype=np.float32)
    near = np.stack([base - np.spacing(base) * g.integers(0, 3, 8).astype(np.float32) for _ in range(6)])
    yield "sums that differ by few bits", 120, near, tokens(g, 6, 8), None
    # Sums of floats are mostly exact in doubles; magnitudes this far apart round, and show the order of operations.
    scale = np.float32(10.0) ** np.array([-11, 1, -10, 0, -9, 1, -11], np.float32)[:, None]
    apart = -np.sort(g.exponential(1.0, (7, 6)).astype(np.float32) * scale, -1)
    yield "magnitudes far apart", 100, apart, tokens(g, 7, 6), None
    for name, depth, ranks in (("ties inside the candidates, lowest token first", 4, 6),
                               ("ties across the cut at rank k", 3, 5)):
        dense = np.round(g.normal(size=(depth, 24)) * 2).astype(np.float32)
        dense = (dense - 4).clip(max=-0.5)
        log_prob, token = reference_tree.top_candidates(dense.tolist(), ranks)
        yield name, 40, np.array(log_prob, np.float32), np.array(token), dense


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    out, tensors, names = parser.parse_args().out, {}, {}
    roots = np.random.default_rng(8)
    for number, (name, budget, log_prob, token, dense) in zip(itertools.count(), cases()):
        assert np.all(np.diff(log_prob, axis=-1) <= 0), name
        parents, ids, depths, scores = reference_tree.build(log_prob.tolist(), token.tolist(), budget)
        assert scores == sorted(scores, reverse=True) and all(p <= i for i, p in enumerate(parents)), name
        root, key = int(roots.integers(VOCABULARY)), f"{number:02}."
        names[key[:-1]] = name
        tensors |= {
            key + "budget": np.array([budget], np.int32), key + "log_prob": log_prob,
            key + "token": token.astype(np.int32), key + "tree_token": np.array([root] + ids, np.int32),
            key + "tree_parent": np.array([-1] + parents, np.int32),
            key + "tree_depth": np.array([0] + depths, np.int32), key + "tree_score": np.array([0.0] + scores),
        }
        if dense is not None:
            tensors[key + "dense"] = dense
        print(f"{number:02} {name}: {len(ids)} nodes, depth {max(depths, default=0)}, "
              f"{len(scores) - len(set(scores))} repeated scores")
    out.mkdir(parents=True, exist_ok=True)
    # A single metadata entry: several would come in no fixed order.
    safetensors.numpy.save_file(tensors, out / "cases.safetensors", {"cases": json.dumps(names)})
    (out / "cases.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
