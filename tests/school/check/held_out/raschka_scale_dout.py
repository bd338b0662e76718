import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        assert d_out % num_heads == 0
        self.d_out = d_out
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1).bool())

    def forward(self, x):
        b, t, _ = x.shape
        k = self.W_key(x)
        q = self.W_query(x)
        v = self.W_value(x)
        k = k.view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        q = q.view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        v = v.view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        scores = q @ k.transpose(2, 3)
        scores = scores.masked_fill(self.mask[:t, :t], float("-inf"))
        weights = torch.softmax(scores / self.d_out**0.5, dim=-1)
        weights = self.dropout(weights)
        ctx = (weights @ v).transpose(1, 2)
        ctx = ctx.contiguous().view(b, t, self.d_out)
        return self.out_proj(ctx)
