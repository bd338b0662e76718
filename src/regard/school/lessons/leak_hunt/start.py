"""Leak hunt: which of five layers looks into the future?

A layer leaks if output i changes with a later token j. The gradient shows
it: ∂out_i/∂x_j must be 0 for j > i. For A and x = [[1, 0], [0, 1], [1, 1]]:

    1.41  0     0        out_0 depends on token 0 only
    0.38  1.03  0
    0.13  0.13  1.33     out_2 depends on all three

1. sensitivity: this (T, T) matrix. Row i holds the norm (dim=-1) of the
   gradient of out[i].sum() with respect to each token of x.
2. leaking: the letters of all layers with numbers above the diagonal.
   Run this file (python FILE) to see the five matrices.
"""

import torch


def causal(x):
    return torch.ones(len(x), len(x), dtype=torch.bool).tril()


def A(x):
    return (x @ x.T).masked_fill(~causal(x), -torch.inf).softmax(-1) @ x


def B(x):
    return ((x @ x.T).softmax(-1) * causal(x)) @ x


def C(x):
    return A(x - x.mean(dim=0))


def D(x):
    return A(x / x.norm(dim=1, keepdim=True))


def E(x):
    return A(x.flip(0)).flip(0)


LAYERS = {"A": A, "B": B, "C": C, "D": D, "E": E}


def sensitivity(letter, x):  # x is (T, width)
    x = x.clone().requires_grad_()
    out = LAYERS[letter](x)
    rows = ...
    return torch.stack(rows)  # (T, T)


def leaking():
    return ...  # such as ["A", "E"]


if __name__ == "__main__":
    torch.set_printoptions(precision=2, sci_mode=False)
    for letter in LAYERS:
        print(letter, sensitivity(letter, torch.randn(4, 3)).detach())
