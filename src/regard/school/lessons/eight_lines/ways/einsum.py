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
        matrices = self.W_query, self.W_key, self.W_value
        heads = self.num_heads, self.head_dim
        q, k, v = (W(x).unflatten(-1, heads) for W in matrices)
        scores = torch.einsum("bthd,bshd->bhts", q, k) / self.head_dim**0.5
        future = self.mask[: x.shape[1], : x.shape[1]]
        weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
        context = torch.einsum("bhts,bshd->bthd", self.dropout(weights), v)
        return self.out_proj(context.flatten(2))


def forward_text():
    """The text of forward, to count its lines. The check calls this: leave it."""
    return inspect.getsource(MultiHeadAttention.forward)
