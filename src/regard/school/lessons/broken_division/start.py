"""Broken: the width does not divide by the number of heads.

Run this file with python: the layer is built, and fails later, elsewhere:

    RuntimeError: shape '[1, 5, 12, 64]' is invalid for input of size 3850

770 // 12 is 64, and 12 heads of 64 are 768: two numbers are left over.
Make the constructor raise a ValueError at once where it does not divide.
A good error has three parts:

    the rule     d_out must be divisible by num_heads
    the values   770 and 12
    the remedy   a width that works: 768 or 780
"""

import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out)

    def forward(self, x):
        B, T, _ = x.shape
        return self.W_query(x).view(B, T, self.num_heads, self.head_dim)


def error_of(d_out, num_heads):
    """What the constructor raises, as text. The check calls this: leave it."""
    try:
        Heads(4, d_out, num_heads)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    print(Heads(4, 770, 12)(torch.randn(1, 5, 4)).shape)
