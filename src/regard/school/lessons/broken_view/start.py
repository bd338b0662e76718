"""Broken: view after transpose.

Run this file with python:

    RuntimeError: view size is not compatible with input tensor's size and
    stride … Use .reshape(...) instead.

Mend the last line but one of forward. Careful: there is a way to silence
the error that gives wrong numbers, and torch will not tell you. The
context of 2 tokens and 2 heads of 2, in memory and as it should come out:

    memory   head 0: token 0 [0, 1]  token 1 [4, 5]
             head 1: token 0 [2, 3]  token 1 [6, 7]
    joined   token 0: [0, 1, 2, 3]   token 1: [4, 5, 6, 7]
"""

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out)
        self.W_key = nn.Linear(d_in, d_out)
        self.W_value = nn.Linear(d_in, d_out)
        self.out_proj = nn.Linear(d_out, d_out)

    def forward(self, x):
        B, T, _ = x.shape
        heads = (B, T, self.num_heads, self.head_dim)
        q = self.W_query(x).view(heads).transpose(1, 2)  # (B, H, T, D)
        k = self.W_key(x).view(heads).transpose(1, 2)
        v = self.W_value(x).view(heads).transpose(1, 2)
        weights = torch.softmax(q @ k.mT / self.head_dim**0.5, dim=-1)
        context = weights @ v  # (B, H, T, D)
        concat = context.transpose(1, 2).view(B, T, -1)
        return self.out_proj(concat)


if __name__ == "__main__":
    print(MultiHeadAttention(6, 6, 2)(torch.randn(1, 5, 6)).shape)
