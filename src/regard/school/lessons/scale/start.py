"""Scaled dot-product attention, of one head.

    attention(q, k, v) = softmax(q · kᵀ / √head_dim) · v

An example with head_dim = 4: q = [1 1 1 1] meets k0 = [1 1 1 1] and
k1 = [0 0 0 0]. The scores are 4 and 0, divided by √4 they are 2 and 0, and
the weights .88 and .12. Without the scale they would be .98 and .02.

From here on there is a batch in front: B texts at once. `@` treats each
text separately. `k.mT` swaps the last two axes; `k.T` would swap all three.
There may be more or fewer keys (S) than queries (T).
"""

import torch


def attention(q, k, v):  # (B, T, D), (B, S, D), (B, S, D)
    head_dim = q.shape[-1]
    scores = ...  # (B, T, S): every query against every key
    weights = ...  # (B, T, S): of the scaled scores; sums to 1 over the keys
    return ...  # (B, T, D): values, mixed
