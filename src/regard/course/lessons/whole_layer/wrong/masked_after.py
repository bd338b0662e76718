# named: mask after softmax without renormalising
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
        future = torch.ones(context_length, context_length, dtype=torch.bool).triu(1)
        self.register_buffer("mask", future)  # True = future

    def forward(self, x):
        B, T, _ = x.shape  # 1 dimensions
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)  # 2 project: (B, T, d_out) each
        q, k, v = (t.view(B, T, self.num_heads, self.head_dim) for t in (q, k, v))  # 3 split: (B, T, H, D) each
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # 4 transpose: (B, H, T, D) each
        scores = q @ k.mT  # 5 every query against every key: (B, H, T, T)
        scores = scores  # 6 mask: −∞ where a key is in the future
        weights = torch.softmax(scores / self.head_dim**0.5, dim=-1)  # 7 scale and softmax
        weights = self.dropout(weights.masked_fill(self.mask[:T, :T], 0.0))  #   then dropout
        context = weights @ v  # 8 the values, mixed by the weights: (B, H, T, D)
        concat = context.transpose(1, 2).contiguous().view(B, T, self.d_out)  # 9 the heads side by side again: (B, T, d_out)
        return self.out_proj(concat)  # 10 the output projection
