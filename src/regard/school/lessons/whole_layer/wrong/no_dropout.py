# named: dropout never active
import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.d_out, self.num_heads, self.head_dim = d_out, num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        square = torch.ones(context_length, context_length, dtype=torch.bool)
        self.register_buffer("mask", square.triu(1))  # True = future

    def forward(self, x):
        B, T, _ = x.shape  # 1 dimensions
        # 2 project: (B, T, d_out) each
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        # 3 split: (B, T, H, D) each
        heads = (B, T, self.num_heads, self.head_dim)
        q, k, v = q.view(heads), k.view(heads), v.view(heads)
        # 4 transpose: (B, H, T, D) each
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        # 5 every query against every key: (B, H, T, T)
        scores = q @ k.mT
        # 6 mask: −∞ where a key is in the future
        scores = scores.masked_fill(self.mask[:T, :T], -torch.inf)
        # 7 scale and softmax, then dropout
        weights = torch.softmax(scores / self.head_dim**0.5, dim=-1)
        weights = weights
        # 8 the values, mixed by the weights: (B, H, T, D)
        context = weights @ v
        # 9 the heads side by side again: (B, T, d_out)
        concat = context.transpose(1, 2).contiguous().view(B, T, self.d_out)
        # 10 the output projection
        return self.out_proj(concat)
