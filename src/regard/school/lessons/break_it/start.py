"""Break it: write the input that exposes a wrong layer.

`attention` is right. The three layers below it are wrong, and all of them
pass this test, because its inputs are kind to them:

    q, k, v = torch.randn(3, 4, 4)      # 4 tokens, head_dim 4
    assert torch.allclose(layer_1(q, k, v), attention(q, k, v), atol=1e-5)

Find out what is wrong with each. Then return, for each, a q, k and v of
shape (T, D) on which it gives something else than `attention`. Only use
ordinary numbers: `attention` itself must not overflow.

Whoever tests a layer needs this: a mistake shows only on some inputs.
"""

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
    return ...


def break_2():
    return ...


def break_3():
    return ...
