import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, n, e = x.shape
        q = self.query(x).view(b, n, self.n_heads, self.d_head).transpose(1, 2)
        k = self.key(x).view(b, n, self.n_heads, self.d_head).transpose(1, 2)
        v = self.value(x).view(b, n, self.n_heads, self.d_head).transpose(1, 2)
        w = torch.softmax(q @ k.transpose(2, 3) / self.d_head**0.5, dim=-1)
        out = self.proj((w @ v).transpose(1, 2).reshape(b, n, e))
        x.copy_(out)
        return out
