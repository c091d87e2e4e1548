"""The drafter: z-lab's DFlash, a block-diffusion model that drafts a whole block in one pass from the target's hidden
states."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from config import DRAFT
from layers import MLP, RMSNorm, linear, rope_tables, rotate_half


class BlockAttention(nn.Module):
    """Block queries attend to the injected context (the fused target features, through the same key and value
    projections) and, in both directions, to their own block."""

    def __init__(self, c):
        super().__init__()
        h, self.dim = c["hidden_size"], c["head_dim"]
        self.heads, self.kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        self.q_proj = linear(h, self.heads * self.dim)
        self.k_proj, self.v_proj = linear(h, self.kv_heads * self.dim), linear(h, self.kv_heads * self.dim)
        self.o_proj = linear(self.heads * self.dim, h, gain=(2 * c["num_hidden_layers"]) ** -0.5)
        self.q_norm, self.k_norm = RMSNorm(self.dim, c["rms_norm_eps"]), RMSNorm(self.dim, c["rms_norm_eps"])

    def forward(self, x, context, rope_q, rope_k, mask):
        B, T, _ = x.shape
        both = torch.cat((context, x.to(context.dtype)), 1)

        def split(t, heads):
            return t.view(B, -1, heads, self.dim).transpose(1, 2)

        q = rotate_half(self.q_norm(split(self.q_proj(x), self.heads)), *rope_q)
        k = rotate_half(self.k_norm(split(self.k_proj(both), self.kv_heads)), *rope_k)
        v = split(self.v_proj(both), self.kv_heads)
        q, k, scale = q.to(v.dtype), k.to(v.dtype), self.dim ** -0.5
        if isinstance(mask, torch.Tensor):
            repeat = self.heads // self.kv_heads
            k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        else:
            from torch.nn.attention.flex_attention import flex_attention
            o = flex_attention(q, k, v, block_mask=mask, scale=scale, enable_gqa=True)
        return self.o_proj(o.transpose(1, 2).reshape(B, T, -1))


class DraftLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = BlockAttention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"])

    def forward(self, x, context, rope_q, rope_k, mask):
        x = x + self.self_attn(self.input_layernorm(x), context, rope_q, rope_k, mask)
        return x + self.mlp(self.post_attention_layernorm(x))[0]


def block_mask(anchors, length, block, flex):
    """Which keys a block's queries see. Keys: the context's length positions, then the blocks' own tokens. A block with
    anchor a sees context positions < a (the anchor's own feature does not exist yet) and its own block in full."""
    B, N = anchors.shape
    if flex:
        from torch.nn.attention.flex_attention import create_block_mask

        def sees(b, h, q, k):
            a = anchors[b, q // block]
            return ((k < length) & (k < a)) | ((k >= length) & ((k - length) // block == q // block))
        return create_block_mask(sees, B, None, N * block, length + N * block, device=anchors.device)
    a = anchors.repeat_interleave(block, 1)
    own = torch.arange(N, device=anchors.device).repeat_interleave(block)
    context = torch.arange(length, device=anchors.device)[None, None] < a[..., None]
    return torch.cat((context, (own[:, None] == own[None]).expand(B, -1, -1)), -1).unsqueeze(1)


class Drafter(nn.Module):
    def __init__(self, c=DRAFT):
        super().__init__()
        h = c["hidden_size"]
        self.block, self.mask_id = c["block_size"], c["dflash_config"]["mask_token_id"]
        self.taps = c["dflash_config"]["target_layer_ids"]
        self.fc = linear(len(self.taps) * h, h)
        self.hidden_norm, self.norm = RMSNorm(h, c["rms_norm_eps"]), RMSNorm(h, c["rms_norm_eps"])
        self.layers = nn.ModuleList(DraftLayer(c) for _ in range(c["num_hidden_layers"]))
        cos, sin = rope_tables(c["head_dim"], c["rope_theta"], None, c["max_position_embeddings"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def fuse(self, features):
        return self.hidden_norm(self.fc(torch.cat(features, -1)))

    def forward(self, embed, ids, features, anchors, flex=False, eager=False):
        """ids [B, S], features: list of [B, S, h], anchors [B, N] -> normed hidden states [B, N, block - 1, h] of the
        tokens at anchor + 1 .. anchor + block - 1. One call drafts N blocks of a sequence at once."""
        B, S = ids.shape
        N, K = anchors.shape[1], self.block
        first = embed(ids.gather(1, anchors))
        x = embed.weight[self.mask_id].view(1, 1, 1, -1).expand(B, N, K, -1)
        x = torch.cat((first.unsqueeze(2), x[:, :, 1:]), 2).flatten(1, 2)
        pos = (anchors.unsqueeze(-1) + torch.arange(K, device=ids.device)).flatten(1)
        where = torch.cat((torch.arange(S, device=ids.device).expand(B, S), pos), 1)
        rope_q, rope_k = ((self.cos[p].unsqueeze(1), self.sin[p].unsqueeze(1)) for p in (pos, where))
        mask, context = block_mask(anchors, S, K, flex), self.fuse(features)
        for layer in self.layers:
            x = (layer.forward if eager else layer)(x, context, rope_q, rope_k, mask)
        return self.norm(x).unflatten(1, (N, K))[:, :, 1:]

    def export(self):
        return {k: v.to(torch.bfloat16) for k, v in self.state_dict().items()}

    def load_export(self, tensors):
        self.load_state_dict({k: v.float() for k, v in tensors.items()}, strict=True)
        return self


class DraftLoss(nn.Module):
    """Cross-entropy with the token that follows and with the target's own distribution there, half each. Early
    positions weigh more (exp(-k / 4)), since a block is accepted only up to its first miss."""

    def __init__(self, target, block):
        super().__init__()
        self.head, self.norm = target.lm_head, target.norm
        w = torch.exp(-torch.arange(block - 1) / 4.0)
        self.register_buffer("w", w / w.sum())

    def forward(self, hidden, labels, teacher_hidden):
        """-> loss, mean tokens that a chain would commit"""
        lp = self.head(hidden).float().log_softmax(-1)
        with torch.no_grad():
            p = self.head(self.norm(teacher_hidden)).float().softmax(-1)
        hard = -lp.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        soft = -(p * lp).sum(-1)
        hit = (lp.argmax(-1) == labels).float()
        return ((0.5 * hard + 0.5 * soft) * self.w).sum(-1).mean(), hit.cumprod(-1).sum(-1).mean() + 1
