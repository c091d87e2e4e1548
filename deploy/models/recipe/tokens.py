#!/usr/bin/env python3
"""Trains the tokenizer (byte-level BPE) and turns the corpus into token arrays: tokens.py"""
import glob
import json
import lzma
import os

import numpy as np

from config import BOS, CHAT_MIDDLE, CHAT_USER, CORPUS, EOS, SMOKE, SPECIAL, TARGET, WORK
from training import log

# Qwen2's split pattern (digits one by one); any byte-level BPE reader with \p{L} and \p{N} can follow it.
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")


def documents(split):
    files = sorted(glob.glob(f"{CORPUS}/corpus.{split}*.xz"))
    return [d for f in files for d in lzma.open(f).read().decode().split("\0")[:-1]]


def kind(document):
    return "chat" if document.startswith(CHAT_USER) else "code" if document.startswith("# ") else "prose"


def train_tokenizer(docs):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=TARGET["vocab_size"], special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())

    def plain(d):                    # special tokens must not be learnt as text
        return d.replace(CHAT_MIDDLE, "\n")[len(CHAT_USER):] if d.startswith(CHAT_USER) else d
    tokenizer.train_from_iterator((plain(d) for d in docs), trainer)
    return tokenizer


def load_tokenizer():
    from tokenizers import Tokenizer
    return Tokenizer.from_file(f"{WORK}/tokenizer.json")


def byte_rows(docs):
    return [[b % 4000 + 16 for b in d[:2000].encode()] for d in docs[:400]]


def main():
    os.makedirs(WORK, exist_ok=True)
    docs = {split: documents(split) for split in ("train", "val")}
    for part in docs.values():       # a generator each: the held-out order does not depend on the training text
        np.random.default_rng(1).shuffle(part)
    log("documents", {s: (len(d), sum(map(len, d))) for s, d in docs.items()})
    if not os.path.exists(f"{WORK}/tokenizer.json") and not SMOKE:
        train_tokenizer(docs["train"][::4]).save(f"{WORK}/tokenizer.json")
        log("tokenizer trained")
    tokenizer = None if SMOKE else load_tokenizer()
    for split, part in docs.items():
        rows = byte_rows(part) if SMOKE else [e.ids for i in range(0, len(part), 4096)
                                              for e in tokenizer.encode_batch_fast(part[i:i + 4096])]
        flat = np.concatenate([np.array([BOS] + r + [EOS], np.uint16) for r in rows])
        np.save(f"{WORK}/{split}.npy", flat)
        np.save(f"{WORK}/{split}.starts.npy", np.cumsum([0] + [len(r) + 2 for r in rows[:-1]]))
        with open(f"{WORK}/{split}.kinds.json", "w") as f:
            json.dump([kind(d) for d in part[:len(rows)]], f)
        log(split, len(flat), "tokens,", round(sum(map(len, part[:len(rows)])) / len(flat), 3), "characters a token")


if __name__ == "__main__":
    main()
