#!/usr/bin/env python3
"""Golden data of the exported pair for another implementation, and a check against transformers where that is
installed: golden.py. Everything is computed in float32 from the bfloat16 weights of the export."""
import os

import torch

import storage
import tree
from config import BOS, SMOKE
from drafter import Drafter
from own_text import load_target
from tokens import load_tokenizer
from training import DEVICE, EXPORT, log

PROMPTS = [
    "import os\nimport sys\n\n\ndef read_file(path, encoding='utf-8'):\n    \"\"\"Return the contents of a file.\"\"\"\n",
    "The :mod:`json` module provides an interface for",
    "class Node:\n    def __init__(self, value, parent=None):\n        self.value = value\n",
    "<|im_user|>user<|im_middle|>Write a Python function `is_empty`: Return True if the queue is empty.<|im_end|>"
    "<|im_assistant|>assistant<|im_middle|>",
]
CONTINUATION, BUDGETS, FUSED_ROWS = 64, (16, 64), 16


def transformers_target():
    if SMOKE:
        return None
    os.environ.setdefault("HF_HUB_OFFLINE", "1")      # the export is on disk; a machine without network waits for long
    try:
        import transformers
        model = transformers.DeepseekV3ForCausalLM.from_pretrained(
            f"{EXPORT}/target", dtype=torch.float32, attn_implementation="eager")
    except Exception as e:           # a check, not a requirement: the reason is enough
        log("transformers did not load the target:", repr(e)[:1500])
        return None
    log("transformers", transformers.__version__)
    return model.to(DEVICE).eval()


def compare(reference, ids, logits, features, taps):
    """largest differences from transformers over all positions"""
    out = reference(ids, output_hidden_states=True)
    theirs = out.logits[0].float()
    return dict(
        logits=(theirs - logits).abs().max().item(), largest_logit=logits.abs().max().item(),
        features=max((out.hidden_states[k + 1][0] - f[0]).abs().max().item() for k, f in zip(taps, features)),
        same_argmax=(theirs.argmax(-1) == logits.argmax(-1)).float().mean().item())


@torch.no_grad()
def main():
    torch.set_float32_matmul_precision("highest")
    target, reference = load_target(), transformers_target()
    drafter = Drafter().load_export(storage.load_folder(f"{EXPORT}/drafter")).to(DEVICE).eval()
    if SMOKE:
        def encode(s): return [16 + b for b in s.encode()][:60]
        decode = str
    else:
        tokenizer = load_tokenizer()
        def encode(s): return tokenizer.encode(s).ids
        def decode(ids): return tokenizer.decode(ids, skip_special_tokens=False)
    data, text = {}, []
    for i, prompt in enumerate(PROMPTS):
        ids = torch.tensor([[BOS] + encode(prompt)], device=DEVICE)
        P, pre = ids.shape[1], f"prompt{i}."
        whole = target.generate(ids, CONTINUATION, lambda l, _: l.argmax(-1))
        x, features, _ = target(whole, taps=drafter.taps, eager=True)
        logits = target.logits(x)[0].float()
        hidden = drafter(target.embed_tokens, whole, features, torch.tensor([[P]], device=DEVICE), eager=True)[0, 0]
        log_probs = target.lm_head(hidden).float().log_softmax(-1)
        data[pre + "ids"] = ids[0].int()
        data[pre + f"greedy_{CONTINUATION}"] = whole[0, P:].int()
        data[pre + "target_logits_last4"] = logits[P - 4:P]
        data[pre + "target_features_last"] = torch.stack([f[0, P - 1] for f in features]).float()
        data[pre + f"fused_features_last{FUSED_ROWS}"] = drafter.fuse(features)[0, max(0, P - FUSED_ROWS):P].float()
        data[pre + "draft_logprobs"] = log_probs
        best, tokens = log_probs.topk(64)
        for budget in BUDGETS:
            built = tree.build(best.tolist(), tokens.tolist(), budget)
            for name, values in zip(("parent", "depth", "token", "score"), built):
                kind = torch.float32 if name == "score" else torch.int32
                data[f"{pre}tree{budget}.{name}"] = torch.tensor(values, dtype=kind)
        top = logits[P - 1:-1].topk(2)[0]
        entry = dict(prompt=prompt, greedy=decode(whole[0, P:].tolist()),
                     smallest_margin=(top[:, 0] - top[:, 1]).min().item())
        if reference is not None:
            entry["transformers_difference"] = compare(reference, whole, logits, features, drafter.taps)
        log({k: v for k, v in entry.items() if k not in ("prompt", "greedy")})
        text.append(entry)
    storage.save(f"{EXPORT}/golden.safetensors", data)
    storage.write_json(f"{EXPORT}/golden.text.json", text)
    log("golden data", sum(t.numel() * t.element_size() for t in data.values()), "bytes")


if __name__ == "__main__":
    main()
