"""Building blocks of the target and the drafter, in plain torch."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


def linear(size_in, size_out, gain=1.0):
    m = nn.Linear(size_in, size_out, bias=False)
    nn.init.normal_(m.weight, std=gain * size_in ** -0.5)
    return m


class MLP(nn.Module):
    """SwiGLU. The second result stands where an MoE reports its expert load."""

    def __init__(self, hidden, inner, depth):
        super().__init__()
        self.gate_proj, self.up_proj = linear(hidden, inner), linear(hidden, inner)
        self.down_proj = linear(inner, hidden, gain=(2 * depth) ** -0.5)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)), None


def yarn_frequencies(dim, theta, scaling):
    """[dim / 2] inverse frequencies as DeepSeek-V3 computes them: low ones divided by the factor, high ones kept."""
    base = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if not scaling:
        return base

    def index_of(turns):             # the index whose wavelength makes so many turns over the original context
        return dim * math.log(scaling["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(index_of(scaling["beta_fast"])), 0)
    high = min(math.ceil(index_of(scaling["beta_slow"])), dim - 1)
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
    return base / scaling["factor"] * ramp + base * (1 - ramp)


def rope_tables(dim, theta, scaling, length):
    """cos and sin, [length, dim / 2] each. Not scaled by YaRN's mscale: mscale equals mscale_all_dim in our configs."""
    angle = torch.arange(length, dtype=torch.float64)[:, None] * yarn_frequencies(dim, theta, scaling)[None]
    return angle.cos().float(), angle.sin().float()


def rotate_interleaved(x, cos, sin):
    """Pairs (2i, 2i + 1), as DeepSeek's weights have them."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


def rotate_half(x, cos, sin):
    """Pairs (i, i + dim / 2), as Qwen3's weights have them."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)
