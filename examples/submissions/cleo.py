"""One mistake: after transpose the memory is not contiguous, so view fails."""

import torch
from torch.nn import Dropout, Linear, Module
from torch.nn.functional import softmax


class Attention(Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        assert d_out % num_heads == 0, "d_out must be divisible by num_heads"
        self.n, self.d = num_heads, d_out // num_heads
        self.W_query, self.W_key, self.W_value = (Linear(d_in, d_out, bias=qkv_bias) for _ in "qkv")
        self.out_proj = Linear(d_out, d_out)
        self.dropout = Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1).bool())

    def heads(self, y):
        return y.unflatten(-1, (self.n, self.d)).transpose(1, 2)

    def forward(self, x):
        T = x.shape[1]
        q, k, v = map(self.heads, (self.W_query(x), self.W_key(x), self.W_value(x)))
        s = (q @ k.mT).masked_fill(self.mask[:T, :T], -torch.inf) / self.d**0.5
        z = self.dropout(softmax(s, dim=-1)) @ v
        return self.out_proj(z.transpose(1, 2).view(x.shape[0], T, self.n * self.d))
