#!/usr/bin/env python3
"""Trains the drafter against the frozen target and exports it: train_drafter.py --seconds N [--until M]

First a short while on the corpus, then mostly on the target's own text (own_text.py), which is what it will see. As in
train_target.py the schedule follows N seconds, and --until stops earlier with a checkpoint to go on from.
"""
import argparse
import os
import time

import numpy as np
import torch
import torch.nn as nn

import storage
from config import CONTEXT, DRAFT, SMOKE, WORK
from drafter import DraftLoss, Drafter
from own_text import PROMPT, load_target
from training import (DEVICE, EXPORT, adamw, autocast, compiled, load_checkpoint, load_tokens, log, pick_attention,
                      random_windows, save_checkpoint, set_rate)

CORPUS_FIRST = 0.1                   # this share of the time on the corpus alone
CORPUS_LATER = 0.15                  # then this share of the steps
CORPUS_ANCHORS, OWN_ANCHORS = (8, 4) if SMOKE else (128, 64)


class Batches:
    """Rows to draft in, the first position that may be an anchor, and the number of anchors a row."""

    def __init__(self, batch, generator, seed):
        self.data = load_tokens("train")
        self.own = torch.from_numpy(np.load(f"{WORK}/own.npy").astype(np.int32)).to(DEVICE)
        self.batch, self.generator, self.coin = batch, generator, np.random.default_rng(seed)

    def next(self, done):
        if done > CORPUS_FIRST and self.coin.random() > CORPUS_LATER:
            pick = torch.randint(len(self.own), (2 * self.batch,), device=DEVICE, generator=self.generator)
            return self.own[pick].long(), PROMPT, OWN_ANCHORS
        return random_windows(self.data, self.batch, CONTEXT, self.generator), 1, CORPUS_ANCHORS


def export(model, stats):
    folder = f"{EXPORT}/drafter"
    os.makedirs(folder, exist_ok=True)
    storage.save(folder + "/model.safetensors", model.export())
    storage.write_json(folder + "/config.json", DRAFT)
    storage.write_json(f"{EXPORT}/drafter.stats.json", stats)


def train(seconds, until, batch, peak):
    torch.manual_seed(0)
    pick_attention()
    target = load_target().requires_grad_(False)
    model = Drafter().to(DEVICE)
    optimizer = adamw(model, peak, 0.05)
    state = load_checkpoint("drafter") or dict(step=0, spent=0.0, blocks=0, history=[])
    step, spent, blocks, history = state["step"], state["spent"], state["blocks"], state["history"]
    if step:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    log("parameters", sum(p.numel() for p in model.parameters()), "from step", step)
    loss_fn = compiled(DraftLoss(target, model.block).to(DEVICE))
    for layer in [*model.layers, *target.layers]:
        compiled(layer)
    generator = torch.Generator(device=DEVICE).manual_seed(3 + step)
    batches = Batches(batch, generator, 3 + step)
    offsets = torch.arange(model.block - 1, device=DEVICE)

    def loss_of(ids, low, count):
        B, S = ids.shape
        anchors = torch.randint(low, S - model.block + 1, (B, count), device=DEVICE, generator=generator).sort(1)[0]
        at = anchors.unsqueeze(-1) + offsets
        labels = ids.gather(1, (at + 1).flatten(1)).view(at.shape)
        with autocast():
            with torch.no_grad():
                x, features, _ = target(ids, taps=model.taps)
            teacher = x.gather(1, at.flatten(1).unsqueeze(-1).expand(-1, -1, x.shape[-1])).view(*at.shape, -1)
            return loss_fn(model(target.embed_tokens, ids, features, anchors, flex=DEVICE == "cuda"), labels, teacher)

    for done in (0.0, *(0.99,) * 4):     # compile both shapes before the clock starts
        loss_of(*batches.next(done))[0].backward()
    model.zero_grad(set_to_none=True)
    log("compiled")
    start, every = time.time() - spent, 2 if SMOKE else 100
    while time.time() - start < min(seconds, until):
        done = (time.time() - start) / seconds
        set_rate(optimizer, peak, step, 100, done)
        ids, low, count = batches.next(done)
        loss, accepted = loss_of(ids, low, count)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step, blocks = step + 1, blocks + ids.shape[0] * count
        if step % every == 0:
            source = "own" if low > 1 else "corpus"
            history.append([step, round(time.time() - start, 1), source, round(loss.item(), 4), round(accepted.item(), 3)])
            if SMOKE or step <= 200 or step % 500 == 0:
                log(f"step {step} {source} loss {loss.item():.4f} tokens a verify {accepted.item():.3f} blocks {blocks}")
    spent = time.time() - start
    stats = dict(steps=step, blocks=blocks, seconds=spent, parameters=sum(p.numel() for p in model.parameters()))
    log("drafter", stats)
    export(model, dict(stats, history_columns=["step", "seconds", "text", "loss", "tokens_a_verify"], history=history))
    save_checkpoint("drafter", model=model.state_dict(), optimizer=optimizer.state_dict(), step=step, spent=spent,
                    blocks=blocks, history=history)


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--seconds", type=float, default=600)
    a.add_argument("--until", type=float, default=float("inf"))
    a.add_argument("--batch", type=int, default=64, help="corpus windows a step; of own text twice as many rows")
    a.add_argument("--rate", type=float, default=3e-3)
    o = a.parse_args()
    train(o.seconds, o.until, o.batch, o.rate)
