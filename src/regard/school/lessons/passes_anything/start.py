"""A test that passes anything: mend the inputs.

`test` accepts `unscaled`, which forgot to divide by √D, and `divided_by_D`.
Look at the scores of its first token by hand:

    10·10 + 0·0 = 100 and 10·0 + 0·10 = 0      divided by √2: 70.7 and 0
    softmax: 1.0000 and 0.0000                 either way, to every digit

The inputs are nice whole numbers, and the softmax is saturated.
Change `inputs` (not the layers, not the test) so that `test` still accepts
`attention` and refuses all three wrong layers.

Automatic graders with such inputs exist. Run this file (python FILE) to see
what yours does.
"""

import torch


def inputs():
    q = torch.tensor([[10.0, 0.0], [0.0, 10.0]])
    k = torch.tensor([[10.0, 0.0], [0.0, 10.0]])
    v = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    return q, k, v  # each (T, D)


def attention(q, k, v):
    return (q @ k.T / q.shape[-1] ** 0.5).softmax(-1) @ v


def unscaled(q, k, v):
    return (q @ k.T).softmax(-1) @ v


def divided_by_D(q, k, v):
    return (q @ k.T / q.shape[-1]).softmax(-1) @ v


def average(q, k, v):
    return v.mean(0).expand_as(v)


def test(layer):
    q, k, v = inputs()
    return torch.allclose(layer(q, k, v), attention(q, k, v), atol=1e-3)


if __name__ == "__main__":
    for layer in (attention, unscaled, divided_by_D, average):
        print(f"{layer.__name__:14} {'accepted' if test(layer) else 'refused'}")
