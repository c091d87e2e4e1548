#!/usr/bin/env python3
"""Tokens a verify on held-out prompts: evaluate.py [--per N]

The target writes a continuation of every prompt; the drafter drafts at every position of it; whole decodes are then
replayed: a verify commits the accepted tokens and one more, and the next draft starts there. Three settings: greedy;
sampled with a drafter that does not know the noise; sampled with coupled noise, where drafter and target add the same
Gumbel noise to their logits.
"""
import argparse
import json

import numpy as np
import torch

import storage
import tree
from config import CHAT_MIDDLE, SMOKE, SPECIAL, TARGET, WORK
from drafter import Drafter
from own_text import load_target
from training import DEVICE, EXPORT, log

PROMPT, NEW = (40, 40) if SMOKE else (200, 256)
RANKS = 64                           # candidates a depth: no tree of 64 nodes needs more
BUDGETS = (8, 16, 32, 64)            # drafted nodes, the root not counted
KINDS = ("code", "prose", "chat")


def held_out_prompts(per_kind):
    """[B, PROMPT] tokens and their kinds: beginnings of held-out documents. A chat prompt ends with the assistant's
    header and begins in the document before it."""
    flat, starts = np.load(f"{WORK}/val.npy").astype(np.int64), np.load(f"{WORK}/val.starts.npy")
    with open(f"{WORK}/val.kinds.json") as f:
        kinds = json.load(f)
    middle, rows, labels = SPECIAL.index(CHAT_MIDDLE), [], []
    for want in KINDS:
        for i in (i for i, k in enumerate(kinds) if k == want and i):
            a, b = starts[i], starts[i + 1] if i + 1 < len(starts) else len(flat)
            if want == "chat":
                marks = np.flatnonzero(flat[a:b] == middle)
                if len(marks) < 2:
                    continue
                a += marks[1] + 1 - PROMPT
            elif b - a < PROMPT + 64:
                continue
            if labels.count(want) < per_kind and a >= 0:
                rows.append(flat[a:a + PROMPT])
                labels.append(want)
    return torch.from_numpy(np.stack(rows)).to(DEVICE), np.array(labels)


@torch.no_grad()
def draft_everywhere(target, drafter, ids):
    """the drafter's hidden states at every anchor from PROMPT on: [B, anchors, block - 1, h]"""
    anchors = torch.arange(PROMPT, ids.shape[1] - drafter.block + 1, device=ids.device)
    out = []
    for b in range(0, len(ids), 8):
        part = ids[b:b + 8]
        _, features, _ = target(part, taps=drafter.taps, eager=True)
        out.append(drafter(target.embed_tokens, part, features, anchors.expand(len(part), -1), eager=True))
    return torch.cat(out)


class Replay:
    """whole decodes over one set of texts and ranked candidates"""

    def __init__(self, truth, labels, block, log_probs, tokens):
        self.truth, self.labels, self.block = truth, labels, block
        self.log_probs, self.tokens = log_probs, tokens

    def hits(self, b, at, budget):
        want = self.truth[b][at + 1:at + self.block]
        lp, tk = self.log_probs[b][at - PROMPT], self.tokens[b][at - PROMPT]
        if budget:
            return tree.accepted(tree.build(lp, tk, budget), want)
        n = 0
        while n < self.block - 1 and tk[n][0] == want[n]:
            n += 1
        return n

    def run(self, budget):
        """budget None: a chain"""
        steps = {k: [] for k in KINDS}
        for b, label in enumerate(self.labels):
            at = PROMPT              # the first anchor is the token that prefill gave
            while at + self.block <= PROMPT + NEW:
                n = self.hits(b, at, budget) + 1
                steps[label].append(n)
                at += n
        all_ = [n for s in steps.values() for n in s]
        return dict(all=float(np.mean(all_)), **{k: float(np.mean(s)) for k, s in steps.items() if s},
                    histogram=np.bincount(all_, minlength=self.block + 1).tolist())


def ranked(target, hidden, edit):
    """the best RANKS candidates of every anchor and depth, as nested lists"""
    lps, tks = [], []
    for b in range(len(hidden)):
        lp = edit(b, target.lm_head(hidden[b]).float()).log_softmax(-1)
        v, i = lp.topk(RANKS, -1)
        lps.append(v.cpu().tolist())
        tks.append(i.cpu().tolist())
    return lps, tks


@torch.no_grad()
def main(per_kind):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    target = load_target()
    drafter = Drafter().load_export(storage.load_folder(f"{EXPORT}/drafter")).to(DEVICE).eval()
    prompts, labels = held_out_prompts(per_kind)
    B, V, block = len(prompts), TARGET["vocab_size"], drafter.block
    counts = {k: int((labels == k).sum()) for k in KINDS}
    result = dict(prompts=counts, prompt_tokens=PROMPT, new_tokens=NEW, block=block)
    log("prompts", counts)

    def table(name, text, edits):
        hidden = draft_everywhere(target, drafter, text)
        for suffix, edit in edits.items():
            replay = Replay(text.tolist(), labels, block, *ranked(target, hidden, edit))
            cells = {"chain": replay.run(None), **{f"tree{n}": replay.run(n) for n in BUDGETS}}
            result[name + suffix] = cells
            log(name + suffix, {k: round(c["all"], 3) for k, c in cells.items()})
        storage.write_json(f"{EXPORT}/evaluation.json", result)

    text = target.generate(prompts, NEW, lambda l, _: l.argmax(-1))
    table("greedy", text, {"": lambda b, l: l})
    noise = -torch.empty((B, NEW, V), device=DEVICE).exponential_().log()     # Gumbel, one a prompt and position
    for T in (0.6, 1.0):
        text = target.generate(prompts, NEW, lambda l, t: (l / T + noise[:, t - PROMPT]).argmax(-1))
        at = torch.arange(NEW - block + 1, device=DEVICE)[:, None] + torch.arange(1, block, device=DEVICE)
        table(f"T{T}", text, {" independent": lambda b, l: l / T, " coupled": lambda b, l: l / T + noise[b][at]})


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--per", type=int, default=4 if SMOKE else 40, help="prompts of each kind")
    main(a.parse_args().per)
