import math

import torch
import torch.nn as nn


class CausalSelfAttention(nn.Module):
    def __init__(self, dim, n_head, max_seq_len):
        super().__init__()
        self.n_head = n_head
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.register_buffer("mask", torch.full((max_seq_len, max_seq_len), float("-inf")).triu(1))

    def _heads(self, t):
        b, s, e = t.shape
        return t.view(b, s, self.n_head, e // self.n_head).transpose(1, 2)

    def forward(self, x):
        b, s, e = x.shape
        q, k, v = map(self._heads, (self.wq(x), self.wk(x), self.wv(x)))
        scores = torch.matmul(k, q.transpose(2, 3)) / math.sqrt(e // self.n_head)
        scores = scores + self.mask[:s, :s]
        out = torch.softmax(scores, dim=-1) @ v
        return self.wo(out.transpose(1, 2).reshape(b, s, e))
