import inspect

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
        B, T, _ = x.shape
        heads = (B, T, self.num_heads, self.head_dim)
        q, k, v = (W(x).view(heads).transpose(1, 2) for W in (self.W_query, self.W_key, self.W_value))
        scores = q @ k.mT / self.head_dim**0.5
        weights = scores.masked_fill(self.mask[:T, :T], -torch.inf).softmax(dim=-1)
        context = self.dropout(weights) @ v
        concat = context.transpose(1, 2).reshape(B, T, self.d_out)
        return self.out_proj(concat)


def forward_text():
    """The text of forward, whose lines are counted. The check calls this: leave it."""
    return inspect.getsource(MultiHeadAttention.forward)
