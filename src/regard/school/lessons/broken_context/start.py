"""Broken: a text that is longer than the context.

Run this file with python: 7 tokens, and a mask for 4.

    RuntimeError: The size of tensor a (4) must match the size of tensor b
    (7) at non-singleton dimension 2

Neither the text nor the context is named. Make forward raise a ValueError
before it computes anything, with the rule, the values and the remedy, as

    7 tokens do not fit context_length=4; pass at most 4, or build …

Exactly context_length tokens must still fit. Do not cut the text: whoever
passed 7 tokens would get an answer about 4 of them, and never know.
"""

import torch
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)
        square = torch.ones(context_length, context_length, dtype=torch.bool)
        self.register_buffer("mask", square.triu(1))  # True = future

    def forward(self, x):
        T = x.shape[1]
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill(self.mask[:T, :T], -torch.inf)
        return scores.softmax(dim=-1) @ v


def answer(T, context_length):
    """The output's shape or the error, as text. The check calls this: leave it."""
    try:
        out = CausalAttention(3, 2, context_length)(torch.randn(1, T, 3))
        return str(list(out.shape))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    CausalAttention(3, 2, context_length=4)(torch.randn(1, 7, 3))
