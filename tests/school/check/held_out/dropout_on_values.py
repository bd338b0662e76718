import torch
import torch.nn as nn


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, qkv_bias=False):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def forward(self, x):
        _, n, _ = x.shape
        k, q, v = self.W_key(x), self.W_query(x), self.W_value(x)
        s = q @ k.transpose(1, 2)
        s = s.masked_fill(self.mask.bool()[:n, :n], -torch.inf)
        w = torch.softmax(s / k.shape[-1] ** 0.5, dim=-1)
        v = self.dropout(v)
        return w @ v
