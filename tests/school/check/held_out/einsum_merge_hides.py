import torch
from torch import nn, einsum


class EinsumAttention(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        h = self.heads
        q = self.to_q(x).view(b, n, h, c // h)
        k = self.to_k(x).view(b, n, h, c // h)
        v = self.to_v(x).view(b, n, h, c // h)
        sim = einsum("bihd,bjhd->bhij", q, k) * self.scale
        attn = sim.softmax(dim=-1)
        out = einsum("bhij,bjhd->bidh", attn, v)
        out = out.reshape(b, n, c)
        return self.to_out(out)
