"""Right layers whose weights have names that say nothing, for tests that read a run."""

import torch
from torch import nn
from torch.nn import functional as F


class Alpha(nn.Module):
    """Per-head tensors, everything in einsum."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        D = d_model // num_heads
        self.a, self.b, self.c = (nn.Parameter(torch.randn(num_heads, d_model, D)) for _ in range(3))
        self.d = nn.Parameter(torch.randn(num_heads, D, d_model))

    def forward(self, x):
        one, two, three = (torch.einsum("bte,hed->bhtd", x, p) for p in (self.a, self.b, self.c))
        shares = torch.einsum("bhtd,bhsd->bhts", one, two).div(one.shape[-1] ** 0.5).softmax(-1)
        return torch.einsum("bhts,bhsd,hde->bte", shares, three, self.d) if self.joins_all else self.end(shares, three)

    joins_all = False

    def end(self, shares, three):
        return torch.einsum("bhtd,hde->bte", torch.einsum("bhts,bhsd->bhtd", shares, three), self.d)


class Beta(nn.Module):
    """Rotary positions, values before queries and keys in one matrix."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.mix, self.end = nn.Linear(d_model, 3 * d_model, bias=False), nn.Linear(d_model, d_model)

    def turn(self, t):
        half = t.shape[-1] // 2
        angles = torch.arange(t.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
        a, b = t[..., :half], t[..., half : 2 * half]
        cos, sin = angles.cos().to(t), angles.sin().to(t)
        return torch.cat((a * cos - b * sin, b * cos + a * sin, t[..., 2 * half :]), -1)

    def forward(self, x):
        B, T, E = x.shape
        v, q, k = (t.view(B, T, self.h, -1).transpose(1, 2) for t in self.mix(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True)
        return self.end(y.transpose(1, 2).reshape(B, T, E))


class Gamma(nn.Module):
    """A loop over heads, normalised queries and keys, a learned temperature."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        D = d_model // num_heads
        self.maps = nn.ModuleList(nn.Linear(d_model, 3 * D) for _ in range(num_heads))
        self.temperature = nn.Parameter(torch.ones(num_heads))
        self.end = nn.Linear(d_model, d_model)

    def forward(self, x):
        parts = []
        for i, one in enumerate(self.maps):
            q, k, v = one(x).chunk(3, -1)
            scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.temperature[i]
            parts.append(scores.softmax(-1) @ v)
        return self.end(torch.cat(parts, -1))
