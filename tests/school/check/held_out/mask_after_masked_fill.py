import math

import torch
from torch import Tensor, nn


class CausalMHA(nn.Module):
    def __init__(self, d_model: int, n_heads: int, max_len: int = 64):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)
        self.register_buffer("future", torch.ones(max_len, max_len, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.n_heads, c // self.n_heads).permute(2, 0, 3, 1, 4)
        p = torch.softmax(q @ k.mT / math.sqrt(c // self.n_heads), -1)
        p = p.masked_fill(self.future[:t, :t], 0.0)
        y = (p @ v).transpose(1, 2).reshape(b, t, c)
        return self.proj(y), p
