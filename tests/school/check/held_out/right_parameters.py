import torch
import torch.nn as nn


class Attention(nn.Module):
    """weights per head, as in a mechanistic interpretability course"""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        d_head = d_model // n_heads
        self.d_head = d_head
        self.W_Q = nn.Parameter(torch.randn(n_heads, d_model, d_head) * 0.02)
        self.W_K = nn.Parameter(torch.randn(n_heads, d_model, d_head) * 0.02)
        self.W_V = nn.Parameter(torch.randn(n_heads, d_model, d_head) * 0.02)
        self.W_O = nn.Parameter(torch.randn(n_heads, d_head, d_model) * 0.02)
        self.b_Q = nn.Parameter(torch.zeros(n_heads, d_head))
        self.b_K = nn.Parameter(torch.zeros(n_heads, d_head))
        self.b_V = nn.Parameter(torch.zeros(n_heads, d_head))
        self.b_O = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        q = torch.einsum("bpm,nmh->bpnh", x, self.W_Q) + self.b_Q
        k = torch.einsum("bpm,nmh->bpnh", x, self.W_K) + self.b_K
        v = torch.einsum("bpm,nmh->bpnh", x, self.W_V) + self.b_V
        s = torch.einsum("bqnh,bknh->bnqk", q, k) / self.d_head**0.5
        s = s.masked_fill(torch.triu(torch.ones_like(s[0, 0]), 1).bool(), -1e5)
        z = torch.einsum("bnqk,bknh->bqnh", s.softmax(-1), v)
        return torch.einsum("bqnh,nhm->bqm", z, self.W_O) + self.b_O
