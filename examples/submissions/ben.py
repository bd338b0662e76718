"""One mistake: the softmax is over the queries, so that the weights of a token do not sum to 1."""

import torch
import torch.nn as nn


class CausalMHA(nn.Module):
    """One projection for queries, keys and values; einsum for the products."""

    def __init__(self, embed_dim: int, heads: int):
        super().__init__()
        self.h = heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, e // self.h).unbind(2)
        att = torch.einsum("bqhd,bkhd->bhqk", q, k) * (e // self.h) ** -0.5
        future = torch.triu(torch.ones(t, t, device=x.device), diagonal=1) == 1
        att = att.masked_fill(future, float("-inf")).softmax(dim=2)
        return self.proj(torch.einsum("bhqk,bkhd->bqhd", att, v).reshape(b, t, e))
