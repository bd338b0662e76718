"""One projection for queries, keys and values.

Three products with the same x can be one, with the weights one below the
other. nn.Linear keeps a weight as (out, in), so for d_model = 2:

    W_query  [[1, 2], [3, 4]]
    W_key    [[5, 6], [7, 8]]
    W_value  [[9, 9], [0, 0]]
    qkv      [[1, 2], [3, 4], [5, 6], [7, 8], [9, 9], [0, 0]]

1. combine: make that weight, in the order queries, keys, values.
2. take_apart: get q, k and v out of the one product again.
One large product keeps a GPU busier than three small ones; many models,
GPT-2 among them, have one projection in place of three.
"""

import torch
from torch import nn


def combine(W_query, W_key, W_value):  # (d_model, d_model) each
    return ...  # (3 * d_model, d_model)


def take_apart(qkv):  # (B, T, 3 * d_model)
    q, k, v = ...
    return q, k, v  # (B, T, d_model) each


class FastMultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = take_apart(self.qkv_proj(x))
        heads = (B, T, self.num_heads, self.head_dim)
        q, k, v = (t.reshape(heads).transpose(1, 2) for t in (q, k, v))
        weights = torch.softmax(q @ k.mT / self.head_dim**0.5, dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).reshape(B, T, E))
