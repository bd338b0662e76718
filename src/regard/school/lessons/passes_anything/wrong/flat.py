# named: flat
"""A test that passes anything: mend the inputs."""

import torch


def inputs():
    torch.manual_seed(0)
    q, k, v = torch.rand(3, 5, 7) / 10
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
