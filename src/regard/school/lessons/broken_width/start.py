"""Broken: the input is not as wide as the layer expects.

Run this file with python:

    RuntimeError: mat1 and mat2 shapes cannot be multiplied (10x6 and 4x6)

10x6 is the input of a layer: all 2 · 5 = 10 tokens of the batch, 6 wide.
4x6 is its weight: it was built for tokens 4 wide, and makes them 6 wide.
So which layer is it, and what does it get? Mend TwoLayers, so that x
goes through both, from width d_in to d_out, for any d_in and d_out.
"""

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)

    def forward(self, x):  # (B, T, d_in)
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
        return weights @ v  # (B, T, d_out)


class TwoLayers(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.first = SelfAttention(d_in, d_out)
        self.second = SelfAttention(d_in, d_out)

    def forward(self, x):  # (B, T, d_in)
        return self.second(self.first(x))  # (B, T, d_out)


def run(x, d_out):
    """The output, and all weights. The check calls this: leave it."""
    model = TwoLayers(x.shape[-1], d_out)
    return model(x), dict(model.state_dict())


if __name__ == "__main__":
    print(run(torch.randn(2, 5, 4), d_out=6)[0].shape)
