import torch
import torch.nn as nn


class CachedCausalAttention(nn.Module):
    def __init__(self, d_model, num_heads, max_len=64):
        super().__init__()
        self.num_heads = num_heads
        self.wq = nn.Linear(d_model, d_model)
        self.wk = nn.Linear(d_model, d_model)
        self.wv = nn.Linear(d_model, d_model)
        self.wo = nn.Linear(d_model, d_model)
        self.register_buffer("mask", torch.tril(torch.ones(max_len, max_len)).bool())

    def forward(self, x, past_kv=None):
        B, T, E = x.shape
        q = self.wq(x).view(B, T, self.num_heads, -1).transpose(1, 2)
        k = self.wk(x).view(B, T, self.num_heads, -1).transpose(1, 2)
        v = self.wv(x).view(B, T, self.num_heads, -1).transpose(1, 2)
        if past_kv is not None:
            k = torch.cat([past_kv[0], k], dim=2)
            v = torch.cat([past_kv[1], v], dim=2)
        S = k.shape[2]
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(~self.mask[:T, :S], float("-inf"))
        out = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(B, T, E)
        return self.wo(out), (k, v)
