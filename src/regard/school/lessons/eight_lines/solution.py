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
        square = torch.ones(context_length, context_length, dtype=torch.bool)
        self.register_buffer("mask", square.triu(1))  # True = future

    def forward(self, x):
        B, T, _ = x.shape
        heads = (B, T, self.num_heads, self.head_dim)
        matrices = self.W_query, self.W_key, self.W_value
        q, k, v = (W(x).view(heads).transpose(1, 2) for W in matrices)
        scores = q @ k.mT / self.head_dim**0.5
        weights = scores.masked_fill(self.mask[:T, :T], -torch.inf).softmax(dim=-1)
        context = self.dropout(weights) @ v
        return self.out_proj(context.transpose(1, 2).reshape(B, T, self.d_out))


def forward_text():
    """The text of forward, to count its lines. The check calls this: leave it."""
    return inspect.getsource(MultiHeadAttention.forward)
