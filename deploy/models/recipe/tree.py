"""DDTree's best-first tree over a product of per-depth distributions, and the walk that verifies it."""
import heapq


def build(log_probs, tokens, budget):
    """The budget most probable prefixes, best first. log_probs, tokens [depth][rank]: sorted, the best rank first.
    -> lists parent (-1: root), depth (from 1), token, score (sum of log-probabilities). A parent stands before its
    children. The heap holds, for each kept node, its best child and its next sibling: no prefix can be missed."""
    depths, ranks = len(log_probs), len(log_probs[0])
    heap, parent, depth, token, score = [(-log_probs[0][0], 0, -1, 0, 0.0)], [], [], [], []
    while heap and len(parent) < budget:
        cost, d, up, r, base = heapq.heappop(heap)
        me = len(parent)
        parent.append(up)
        depth.append(d + 1)
        token.append(tokens[d][r])
        score.append(-cost)
        if r + 1 < ranks:
            heapq.heappush(heap, (-(base + log_probs[d][r + 1]), d, up, r + 1, base))
        if d + 1 < depths:
            heapq.heappush(heap, (cost - log_probs[d + 1][0], d + 1, me, 0, -cost))
    return parent, depth, token, score


def accepted(built, truth):
    """how many tokens of truth the tree holds on one path from its root"""
    parent, _, token, _ = built
    child = {(p, t): i for i, (p, t) in enumerate(zip(parent, token))}
    at, n = -1, 0
    for t in truth:
        at = child.get((at, t))
        if at is None:
            break
        n += 1
    return n
