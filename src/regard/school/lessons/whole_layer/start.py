"""The whole layer: multi-head attention in ten steps.

You have written each step. Now put them together; for x (2, 5, 12) and
3 heads of 4, the shapes are

    q, k, v   (2, 5, 12) → (2, 5, 3, 4) → (2, 3, 5, 4)
    scores    (2, 3, 5, 5), and so are the weights
    context   (2, 3, 5, 4) → (2, 5, 3, 4) → (2, 5, 12) → out (2, 5, 12)

The constructor is given. Replace every `...` in forward; the text may be
shorter than context_length, so use only a part of self.mask.
This is the layer inside GPT-2, with the names of Raschka's book.
"""

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
        q, k, v = ...
        # 3 split: (B, T, H, D) each
        q, k, v = ...
        # 4 transpose: (B, H, T, D) each
        q, k, v = ...
        # 5 every query against every key: (B, H, T, T)
        scores = ...
        # 6 mask: −∞ where a key is in the future
        scores = ...
        # 7 scale and softmax, then dropout
        weights = ...
        weights = ...
        # 8 the values, mixed by the weights: (B, H, T, D)
        context = ...
        # 9 the heads side by side again: (B, T, d_out)
        concat = ...
        # 10 the output projection
        return ...
