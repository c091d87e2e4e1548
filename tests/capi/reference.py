"""What the C functions mean, in plain Python: slow, and written apart from the kernels."""

import heapq
import math
import struct

MASK = 0xFFFFFFFF
LOWEST = -3.4028234663852886e38  # of fp32
PAGE_BLOCK = 64  # positions of a block of tree attention
MAX_TAIL = 127


def fp32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def build_tree(token, log_prob, root, depths, k, budget):
    """Tokens, parents and scores of the best-first tree. Entries carry their rank path, which breaks ties."""
    tokens, parents, scores, heap = [root], [-1], [0.0], []
    if depths > 0 and k > 0:
        heap.append((-log_prob[0][0], (0,), 0))
    while heap and len(tokens) <= budget:
        negative, path, parent = heapq.heappop(heap)
        score, depth, rank, node = -negative, len(path) - 1, path[-1], len(tokens)
        tokens.append(token[depth][rank])
        parents.append(parent)
        scores.append(min(fp32(max(score, LOWEST)), scores[-1]))
        if rank + 1 < k:
            sibling = (score - log_prob[depth][rank]) + log_prob[depth][rank + 1]
            heapq.heappush(heap, (-sibling, path[:-1] + (rank + 1,), parent))
        if depth + 1 < depths:
            heapq.heappush(heap, (-(score + log_prob[depth + 1][0]), path + (0,), node))
    return tokens, parents, scores


def philox(counter, key):
    """Philox4x32-10: four words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def gumbel_row(seed, sample_index, position, vocabulary):
    """Standard Gumbel noise of every id at a position, in double: the library's fp32 differs by some 1e-6."""
    noise = []
    for block in range((vocabulary + 3) // 4):
        for word in philox((block, position, sample_index, 0), (seed & MASK, seed >> 32)):
            u = min((word + 0.5) / 2.0**32, 1 - 2.0**-24)
            noise.append(-math.log(-math.log1p(-u)))
    return noise[:vocabulary]


def allowed_ids(logits, params, slack):
    """Ids that temperature, top-k, top-p and min-p leave, best first; the cuts on a mass moved by `slack`."""
    most = max(logits)
    ids = sorted(range(len(logits)), key=lambda v: (-logits[v], v))
    if 0 < params["top_k"] < len(ids):
        ids = ids[: params["top_k"]]
    weight = {v: math.exp((logits[v] - most) / params["temperature"]) for v in ids}
    if params["top_p"] < 1:
        needed, mass, count = (params["top_p"] + slack) * sum(weight.values()), 0.0, 0
        while count < len(ids) and mass < needed:
            mass += weight[ids[count]]
            count += 1
        ids = ids[: max(count, 1)]
    return [v for v in ids if weight[v] >= params["min_p"] * (1 - slack) or v == ids[0]]


def check_choice(logits, params, position, chosen):
    """None, or why `chosen` is not the token that the rule takes (near ties either way)."""
    most = max(logits)
    if params["temperature"] == 0:
        return None if chosen == logits.index(most) else f"greedy {chosen}, expected {logits.index(most)}"
    noise = gumbel_row(params["seed"], params["sample_index"], position, len(logits))
    value = [(logit - most) / params["temperature"] + noise[v] for v, logit in enumerate(logits)]
    if chosen not in allowed_ids(logits, params, 1e-6):
        return f"{chosen} is cut"
    best = max(value[v] for v in allowed_ids(logits, params, -1e-6))
    return None if value[chosen] >= best - 1e-4 else f"{chosen} has {value[chosen]}, expected {best}"


def path_to(parents, node):
    """Indices from the root to the node."""
    path = [node]
    while path[0] != 0:
        path.insert(0, parents[path[0]])
    return path


def keys_of(parents, node, root_position, committed_slots, write_slots):
    """Position and the slots of all keys of a node, in position order."""
    path = path_to(parents, node)
    return root_position + len(path) - 1, committed_slots[:root_position] + [write_slots[i] for i in path]


def prefix_blocks(position):
    return 0 if position < PAGE_BLOCK - 1 else (position - PAGE_BLOCK + 1) // PAGE_BLOCK


def accept(tokens, parents, chosen):
    """Accepted indices, root first."""
    path = [0]
    while True:
        current = path[-1]
        children = [i for i in range(1, len(tokens)) if parents[i] == current and tokens[i] == chosen[current]]
        if not children:
            return path
        path.append(children[0])
