"""The target: a small DeepSeek-V3 (latent attention, sigmoid-routed experts with a shared one, YaRN)."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from config import TARGET
from layers import MLP, RMSNorm, linear, rope_tables, rotate_interleaved


class LatentAttention(nn.Module):
    """Over a whole sequence in the expanded form (keys and values rebuilt from the latent); for one new token over a
    cache in the absorbed form, where the cache holds only latent and rotary key."""

    def __init__(self, c):
        super().__init__()
        h, self.heads, depth = c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"]
        self.nope, self.rope, self.value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        self.latent = c["kv_lora_rank"]
        self.q_a_proj = linear(h, c["q_lora_rank"])
        self.q_a_layernorm = RMSNorm(c["q_lora_rank"], c["rms_norm_eps"])
        self.q_b_proj = linear(c["q_lora_rank"], self.heads * (self.nope + self.rope))
        self.kv_a_proj_with_mqa = linear(h, self.latent + self.rope)
        self.kv_a_layernorm = RMSNorm(self.latent, c["rms_norm_eps"])
        self.kv_b_proj = linear(self.latent, self.heads * (self.nope + self.value))
        self.o_proj = linear(self.heads * self.value, h, gain=(2 * depth) ** -0.5)
        m = 0.1 * c["rope_scaling"]["mscale_all_dim"] * math.log(c["rope_scaling"]["factor"]) + 1
        self.scale = (self.nope + self.rope) ** -0.5 * m * m

    def forward(self, x, cos, sin, cache=None, at=0):
        B, T, _ = x.shape
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))).view(B, T, self.heads, -1).transpose(1, 2)
        q = torch.cat((q[..., :self.nope], rotate_interleaved(q[..., self.nope:], cos, sin)), -1)
        kv = self.kv_a_proj_with_mqa(x)
        latent = self.kv_a_layernorm(kv[..., :self.latent])
        k_rope = rotate_interleaved(kv[..., self.latent:], cos, sin)
        if cache is not None:
            cache[:, at:at + T] = torch.cat((latent, k_rope), -1)
            if T == 1:
                return self.o_proj(self.absorbed(q[:, :, 0], cache[:, :at + 1]).reshape(B, 1, -1))
            assert at == 0, "a prompt is fed once and whole"
        kv = self.kv_b_proj(latent).view(B, T, self.heads, -1).transpose(1, 2)
        k_rope = k_rope.unsqueeze(1).expand(B, self.heads, T, self.rope)
        k = torch.cat((kv[..., :self.nope], k_rope.to(kv.dtype)), -1)
        v = F.pad(kv[..., self.nope:], (0, self.nope + self.rope - self.value))   # the fast kernels want one head size
        o = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True, scale=self.scale)
        return self.o_proj(o[..., :self.value].transpose(1, 2).reshape(B, T, -1))

    def absorbed(self, q, cache):
        """q [B, heads, nope + rope], cache [B, t, latent + rope] -> [B, heads, value]"""
        up = self.kv_b_proj.weight.view(self.heads, self.nope + self.value, self.latent)
        inner = torch.einsum("bnd,ndl->bnl", q[..., :self.nope], up[:, :self.nope])
        q = torch.cat((inner, q[..., self.nope:].to(inner.dtype)), -1)
        p = (torch.bmm(q.to(cache.dtype), cache.transpose(1, 2)).float() * self.scale).softmax(-1).to(cache.dtype)
        return torch.einsum("bnl,nvl->bnv", torch.bmm(p, cache[..., :self.latent]), up[:, self.nope:])


class MoE(nn.Module):
    """Experts computed densely, as one wide SwiGLU whose inner columns are multiplied by the routing weight (0 for
    experts that were not chosen): exactly the sparse function, and faster than gathering tokens at this size. The
    shared expert is the last one, with weight 1."""

    def __init__(self, c):
        super().__init__()
        h, self.inner = c["hidden_size"], c["moe_intermediate_size"]
        self.experts, self.chosen, self.factor = c["n_routed_experts"], c["num_experts_per_tok"], c["routed_scaling_factor"]
        width = (self.experts + c["n_shared_experts"]) * self.inner
        self.gate = linear(h, self.experts)
        self.register_buffer("bias", torch.zeros(self.experts))     # e_score_correction_bias: for selection only
        self.gate_proj, self.up_proj, self.down_proj = linear(h, width), linear(h, width), linear(width, h)
        nn.init.normal_(self.down_proj.weight, std=(self.inner * 4 * 2 * c["num_hidden_layers"]) ** -0.5)

    def route(self, x):
        with torch.autocast(x.device.type, enabled=False):
            scores = (x.float() @ self.gate.weight.float().t()).sigmoid()
        pick = (scores + self.bias).detach()
        a, b = pick.unsqueeze(-1), pick.unsqueeze(-2)     # top-k by rank, which fuses; on a tie the lower index wins
        i = torch.arange(self.experts, device=x.device)
        ahead = (b > a) | ((b == a) & (i[None, :] < i[:, None]))
        chosen = (ahead.sum(-1) < self.chosen).float()
        w = scores * chosen
        return w / (w.sum(-1, keepdim=True) + 1e-20) * self.factor, chosen

    def forward(self, x):
        w, chosen = self.route(x)
        w = torch.cat((w, torch.ones_like(w[..., :1])), -1)
        y = (F.silu(self.gate_proj(x)) * self.up_proj(x)).unflatten(-1, (-1, self.inner))
        return self.down_proj((y * w.to(y.dtype).unsqueeze(-1)).flatten(-2)), chosen.flatten(0, -2).sum(0)


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = LatentAttention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        dense = index < c["first_k_dense_replace"]
        self.mlp = MLP(c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"]) if dense else MoE(c)

    def forward(self, x, cos, sin, cache=None, at=0):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache, at)
        y, load = self.mlp(self.post_attention_layernorm(x))
        return x + y, load


class Target(nn.Module):
    def __init__(self, c=TARGET):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        nn.init.normal_(self.embed_tokens.weight, std=0.5)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.lm_head = linear(c["hidden_size"], c["vocab_size"], gain=0.5)
        cos, sin = rope_tables(c["qk_rope_head_dim"], c["rope_theta"], c["rope_scaling"], c["max_position_embeddings"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def moes(self):
        return [l.mlp for l in self.layers if isinstance(l.mlp, MoE)]

    def forward(self, ids, taps=(), cache=None, at=0, eager=False):
        """-> last hidden state before the final norm, the outputs of the layers in taps, the expert loads"""
        T = ids.shape[1]
        x, cos, sin = self.embed_tokens(ids), self.cos[at:at + T], self.sin[at:at + T]
        features, loads = [], []
        for i, layer in enumerate(self.layers):
            call = layer.forward if eager else layer      # layer() is the compiled form where there is one
            x, load = call(x, cos, sin, cache[i], at) if cache else call(x, cos, sin)
            if i in taps:
                features.append(x)
            if load is not None:
                loads.append(load)
        return x, features, loads

    def logits(self, x):
        return self.lm_head(self.norm(x))

    @torch.no_grad()
    def generate(self, ids, count, choose, dtype=torch.float32, chunk=256):
        """choose(logits [B, V], position) -> tokens [B]; returns the prompts and count new tokens"""
        B, P = ids.shape
        width = self.c["kv_lora_rank"] + self.c["qk_rope_head_dim"]
        cache = [torch.empty((B, P + count, width), dtype=dtype, device=ids.device) for _ in self.layers]
        last = [self(ids[b:b + chunk], cache=[t[b:b + chunk] for t in cache], eager=True)[0][:, -1]
                for b in range(0, B, chunk)]
        x, out = torch.cat(last), [ids]
        for t in range(P, P + count):
            token = choose(self.logits(x).float(), t)
            out.append(token[:, None])
            if t + 1 < P + count:
                x = self(token[:, None], cache=cache, at=t, eager=True)[0][:, -1]
        return torch.cat(out, 1)

    def is_moe(self, name):
        return ".mlp." in name and int(name.split(".")[1]) >= self.c["first_k_dense_replace"]

    def export(self):
        """the state under DeepSeek-V3's names, experts apart"""
        out, E = {}, self.c["n_routed_experts"]
        for name, t in self.state_dict().items():
            full = name if name == "lm_head.weight" else "model." + name
            prefix, _, leaf = full.partition(".mlp.")
            if not self.is_moe(name) or leaf == "gate.weight":
                out[full] = t.to(torch.bfloat16)
            elif leaf == "bias":
                out[prefix + ".mlp.gate.e_score_correction_bias"] = t.float()
            else:
                parts = t.split(self.c["moe_intermediate_size"], 1 if leaf.startswith("down") else 0)
                for e, part in enumerate(parts):
                    who = f"experts.{e}" if e < E else "shared_experts"
                    out[f"{prefix}.mlp.{who}.{leaf}"] = part.to(torch.bfloat16)
        return out

    def load_export(self, tensors):
        state, E = {}, self.c["n_routed_experts"]
        for name in self.state_dict():
            full = name if name == "lm_head.weight" else "model." + name
            prefix, _, leaf = full.partition(".mlp.")
            if not self.is_moe(name) or leaf == "gate.weight":
                state[name] = tensors[full]
            elif leaf == "bias":
                state[name] = tensors[prefix + ".mlp.gate.e_score_correction_bias"]
            else:
                whos = [f"experts.{e}" for e in range(E)] + ["shared_experts"]
                parts = [tensors[f"{prefix}.mlp.{who}.{leaf}"] for who in whos]
                state[name] = torch.cat(parts, 1 if leaf.startswith("down") else 0)
        self.load_state_dict({k: v.float() for k, v in state.items()}, strict=True)
        return self
