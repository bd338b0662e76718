# named: scores too small
"""Break it: write the input that exposes a wrong layer."""

import torch


def attention(q, k, v):
    T, D = q.shape
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    scores = (q @ k.T / D**0.5).masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ v


def layer_1(q, k, v):
    T, D = q.shape
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    scores = (q @ k.T / D**0.5).masked_fill(hidden, -torch.inf)
    weights = scores.exp()
    return weights / weights.sum(-1, keepdim=True) @ v


def layer_2(q, k, v):
    T, D = q.shape
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    scores = (q @ k.T / T**0.5).masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ v


def layer_3(q, k, v):
    T, D = q.shape
    scores = (q @ k.T / D**0.5).tril()
    scores = scores.masked_fill(scores == 0, -torch.inf)
    return scores.softmax(-1) @ v


def break_1():
    torch.manual_seed(0)
    return tuple(torch.randn(3, 5, 7))


def break_2():
    return tuple(torch.randn(3, 5, 7))


def break_3():
    return torch.eye(4), torch.eye(4), torch.randn(4, 4)
