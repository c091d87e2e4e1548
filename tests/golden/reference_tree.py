"""The draft tree builder that others are held to: exact best-first search over per-depth candidate lists.

    python reference_tree.py tree_build/cases.safetensors    # prints how many cases show each trap

A node is a path of ranks, one a depth; its score is the sum of its candidates' log-probabilities. The tree holds the
`budget` best paths, best first. Equal scores are ordered by the path of ranks, compared lexicographically, so that a
prefix comes before what continues it.
"""

import argparse
import heapq
import itertools

import numpy as np
import safetensors.numpy

TRAPS = {
    "float32_sums": "scores accumulated in float32",
    "sibling_difference_first": "a sibling's score as score + (next - own)",
    "ties_by_insertion": "equal scores ordered by the time they entered the heap",
    "ties_by_depth": "equal scores ordered by depth, then by path",
    "ties_deeper_first": "equal scores ordered by the reversed path",
    "one_candidate_less": "the last candidate of each depth never used",
    "budget_counts_root": "the root taken as one of the budget's nodes",
}


def top_candidates(log_probs, k):
    """The k best (log-probability, token) of each depth; equal ones by the lower token id."""
    ranked = [sorted((-value, token) for token, value in enumerate(row))[:k] for row in log_probs]
    return [[-value for value, _ in row] for row in ranked], [[token for _, token in row] for row in ranked]


def build(log_prob, token, budget, trap=None):
    """log_prob, token [depth][rank], each row non-increasing. -> parents, tokens, depths, scores without the root.

    Python floats are doubles and the order of the operations is part of the result: a sibling's score is the
    node's, minus the node's own log-probability, plus the sibling's.
    """
    heap, parents, tokens, depths, scores, clock = [], [], [], [], [], itertools.count()

    def push(score, path, parent):
        if trap == "float32_sums":
            score = float(np.float32(score))
        order = {"ties_by_insertion": next(clock), "ties_by_depth": len(path),
                 "ties_deeper_first": tuple(-rank for rank in path)}.get(trap, 0)
        heapq.heappush(heap, (-score, order, path, parent))

    budget -= trap == "budget_counts_root"
    ranks = len(log_prob[0]) - (trap == "one_candidate_less")
    if budget > 0:
        push(log_prob[0][0], (0,), 0)
    while heap and len(parents) < budget:
        negative, _, path, parent = heapq.heappop(heap)
        score, depth, rank = -negative, len(path), path[-1]
        parents.append(parent)
        tokens.append(token[depth - 1][rank])
        depths.append(depth)
        scores.append(score)
        node = len(parents)  # the root is node 0
        if rank + 1 < ranks:
            own, following = log_prob[depth - 1][rank:rank + 2]
            sibling = score - own + following
            if trap == "sibling_difference_first":
                sibling = score + (following - own)
            push(sibling, path[:-1] + (rank + 1,), parent)
        if depth < len(log_prob):
            push(score + log_prob[depth][0], path + (0,), node)
    return parents, tokens, depths, scores


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", help="cases.safetensors")
    tensors = safetensors.numpy.load_file(parser.parse_args().cases)
    keys = sorted({name.split(".")[0] for name in tensors})
    print(f"| {len(keys)} cases | nodes differ | only scores differ |\n| --- | --- | --- |")
    for trap in (None, *TRAPS):
        nodes = bits = 0
        for key in keys:
            case = {name.removeprefix(key + "."): t for name, t in tensors.items() if name.startswith(key + ".")}
            got = build(case["log_prob"].tolist(), case["token"].tolist(), int(case["budget"][0]), trap)
            want = [case[name][1:].tolist() for name in ("tree_parent", "tree_token", "tree_depth", "tree_score")]
            differs = list(got[:3]) != want[:3]
            nodes, bits = nodes + differs, bits + (not differs and got[3] != want[3])
        print(f"| {trap or '**none**'} | {nodes} | {bits} |")
        if bool(trap) != bool(nodes + bits):
            raise SystemExit(f"unexpected result for {trap}")


if __name__ == "__main__":
    main()
