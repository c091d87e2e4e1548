#!/usr/bin/env python3
"""Trains the target and exports it: train_target.py --seconds N [--until M]

The schedule follows N seconds of training. --until stops earlier and leaves a checkpoint; a later call with the same N
goes on from there.
"""
import argparse
import os
import shutil
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import storage
from config import CONTEXT, GENERATION, SMOKE, TARGET, TARGET_SHARDS, TOKENIZER, WORK
from target import Target
from training import (DEVICE, EXPORT, adamw, autocast, compiled, load_checkpoint, load_tokens, log, pick_attention,
                      random_windows, save_checkpoint, set_rate, windows)

BALANCE_RATE = 1e-3                  # step of the selection bias: balances the experts without an auxiliary loss


class LanguageLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.norm, self.head = model.norm, model.lm_head

    def forward(self, x, labels):
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), labels.flatten())


def flops_per_token(c, length):
    """forward, of the weights a sparse implementation would use: 2 a weight, and causal attention"""
    h, n = c["hidden_size"], c["num_attention_heads"]
    qk, v = c["qk_nope_head_dim"] + c["qk_rope_head_dim"], c["v_head_dim"]
    att = h * c["q_lora_rank"] + c["q_lora_rank"] * n * qk + h * (c["kv_lora_rank"] + c["qk_rope_head_dim"])
    att += c["kv_lora_rank"] * n * (c["qk_nope_head_dim"] + v) + n * v * h
    moe = c["num_hidden_layers"] - c["first_k_dense_replace"]
    expert = 3 * h * c["moe_intermediate_size"]
    common = c["num_hidden_layers"] * att + 3 * h * c["intermediate_size"] + h * c["vocab_size"] + moe * h * c["n_routed_experts"]
    active = common + moe * expert * (c["num_experts_per_tok"] + 1)
    return 2 * active + c["num_hidden_layers"] * n * (qk + v) * length


def write_tokenizer(folder):
    if not SMOKE:
        shutil.copy(f"{WORK}/tokenizer.json", folder + "/tokenizer.json")
        storage.write_json(folder + "/tokenizer_config.json", TOKENIZER)


def export(model, stats):
    folder = f"{EXPORT}/target"
    os.makedirs(folder, exist_ok=True)
    storage.save_sharded(folder, model.export(), TARGET_SHARDS)
    storage.write_json(folder + "/config.json", TARGET)
    storage.write_json(folder + "/generation_config.json", GENERATION)
    write_tokenizer(folder)
    storage.write_json(f"{EXPORT}/target.stats.json", stats)


def train(seconds, until, batch, peak):
    torch.manual_seed(0)
    pick_attention()
    data, held_out = load_tokens("train"), load_tokens("val")
    model = Target().to(DEVICE)
    optimizer = adamw(model, peak, 0.1)
    state = load_checkpoint("target") or dict(step=0, spent=0.0, history=[])
    step, spent, history = state["step"], state["spent"], state["history"]
    if step:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    log("parameters", sum(p.numel() for p in model.parameters()), "train tokens", len(data), "from step", step)
    loss_fn = compiled(LanguageLoss(model))
    for layer in model.layers:
        compiled(layer)
    generator = torch.Generator(device=DEVICE).manual_seed(1 + step)

    def loss_of(ids):
        with autocast():
            x, _, loads = model(ids[:, :-1])
            return loss_fn(x, ids[:, 1:]), loads

    loss_of(random_windows(data, batch, CONTEXT + 1, generator))[0].backward()   # compile before the clock starts
    model.zero_grad(set_to_none=True)
    log("compiled")
    start = mark = time.time() - spent
    mark_step, every = step, 2 if SMOKE else 200
    while time.time() - start < min(seconds, until):
        done = (time.time() - start) / seconds
        rate = set_rate(optimizer, peak, step, 150, done)
        loss, loads = loss_of(random_windows(data, batch, CONTEXT + 1, generator))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for moe, load in zip(model.moes(), loads):
                moe.bias += BALANCE_RATE * min(1.0, 2 * (1 - done)) * torch.sign(load.mean() - load)
        step += 1
        if step % every == 0:
            value, now = loss.item(), time.time()
            speed = (step - mark_step) * batch * CONTEXT / (now - max(mark, start + spent))
            mark, mark_step = now, step
            worst = max((l.max() / l.mean()).item() for l in loads)
            history.append([step, round(now - start, 1), round(value, 4), round(speed), round(worst, 3)])
            if SMOKE or step <= 400 or step % 800 == 0:
                log(f"step {step} loss {value:.4f} rate {rate:.2e} {speed / 1e6:.3f} Mtoken/s worst load {worst:.2f}")
    spent = time.time() - start
    if spent < seconds:
        save_checkpoint("target", model=model.state_dict(), optimizer=optimizer.state_dict(), step=step, spent=spent,
                        history=history)
        log("stopped at step", step)
        return
    at = torch.linspace(0, len(held_out) - CONTEXT - 1, 4 * min(64, batch), device=DEVICE).long()
    with torch.no_grad():
        losses = [loss_of(windows(held_out, at[i:i + batch], CONTEXT + 1))[0].item() for i in range(0, len(at), batch)]
    seen = step * batch * CONTEXT
    stats = dict(steps=step, tokens=seen, seconds=spent, tokens_per_second=seen / spent, held_out_loss=float(np.mean(losses)),
                 mfu_active=3 * flops_per_token(TARGET, CONTEXT) * seen / spent / 989e12, epochs=seen / len(data),
                 train_tokens=len(data), parameters=sum(p.numel() for p in model.parameters()))
    log("target", stats)
    export(model, dict(stats, history_columns=["step", "seconds", "loss", "tokens_per_second", "worst_expert_load"],
                       history=history))


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--seconds", type=float, default=470)
    a.add_argument("--until", type=float, default=float("inf"))
    a.add_argument("--batch", type=int, default=64, help="windows of CONTEXT tokens a step")
    a.add_argument("--rate", type=float, default=3e-3)
    o = a.parse_args()
    train(o.seconds, o.until, o.batch, o.rate)
