import math

import torch
import torch.nn as nn


class DecoderSelfAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, p: float = 0.0):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.W_Q = nn.Linear(d_model, d_model)
        self.W_K = nn.Linear(d_model, d_model)
        self.W_V = nn.Linear(d_model, d_model)
        self.W_O = nn.Linear(d_model, d_model)
        self.p = nn.Dropout(p)

    def forward(self, x):
        B, T, E = x.shape
        Q = self.W_Q(x).view(B, T, self.n_heads, self.d_head).transpose(1, 2)
        K = self.W_K(x).view(B, T, self.n_heads, self.d_head).transpose(1, 2)
        V = self.W_V(x).view(B, T, self.n_heads, self.d_head).transpose(1, 2)
        causal = torch.tril(torch.ones(T, T), diagonal=-1)
        scores = (Q @ K.transpose(-1, -2)) / math.sqrt(self.d_head)
        scores = scores.masked_fill(causal == 0, -1e30)
        A = self.p(torch.softmax(scores, dim=-1))
        return self.W_O((A @ V).transpose(1, 2).reshape(B, T, E))
