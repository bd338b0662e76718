"""Grouped-query attention: heads share keys and values.

Eight query heads with two key/value heads keep a cache of a quarter of the
size. Each group of neighbouring query heads shares one:

    query head      0 1 2 3 4 5 6 7
    key head        0 0 0 0 1 1 1 1       and not 0 1 0 1 0 1 0 1

Write `share`, which gives every query head its key head (or value head, it is
the same), and `attend` with it, without a mask. Both orders give the right
shape, and a model that was trained with one talks nonsense with the other.
"""

import torch


def share(k, num_heads):
    ...  # (B, Hkv, S, D) → (B, H, S, D)


def attend(q, k, v):
    B, H, T, D = q.shape  # k and v are (B, Hkv, S, D)
    ...  # (B, H, T, D)


if __name__ == "__main__":
    k = torch.arange(2.0).view(1, 2, 1, 1)  # two heads, holding the numbers 0 and 1
    print(share(k, 8).flatten().tolist())
