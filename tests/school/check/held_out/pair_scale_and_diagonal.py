import torch
import torch.nn as nn


class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads, max_len=32):
        super().__init__()
        self.n_heads = n_heads
        self.d_model = d_model
        self.q = nn.Linear(d_model, d_model)
        self.k = nn.Linear(d_model, d_model)
        self.v = nn.Linear(d_model, d_model)
        self.o = nn.Linear(d_model, d_model)
        self.register_buffer("mask", torch.tril(torch.ones(max_len, max_len), -1))

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = (p(x).view(B, T, self.n_heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        s = q @ k.transpose(2, 3) / self.d_model**0.5
        s = s.masked_fill(self.mask[:T, :T] == 0, -1e9)
        return self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, E))
