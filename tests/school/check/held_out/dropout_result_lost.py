import torch
import torch.nn as nn
import torch.nn.functional as F


class Attn(nn.Module):
    def __init__(self, dim: int, n_heads: int, dropout: float):
        super().__init__()
        self.n_heads = n_heads
        self.wq = nn.Linear(dim, dim)
        self.wk = nn.Linear(dim, dim)
        self.wv = nn.Linear(dim, dim)
        self.wo = nn.Linear(dim, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        b, t, c = x.shape
        d = c // self.n_heads
        q = self.wq(x).view(b, t, self.n_heads, d).permute(0, 2, 1, 3)
        k = self.wk(x).view(b, t, self.n_heads, d).permute(0, 2, 3, 1)
        v = self.wv(x).view(b, t, self.n_heads, d).permute(0, 2, 1, 3)
        w = F.softmax(q @ k / d ** 0.5, dim=-1)
        self.drop(w)
        o = w @ v
        return self.wo(o.permute(0, 2, 1, 3).contiguous().view(b, t, c))
