"""Attention in tiles: the T × T weights are never in memory.

For 8,192 tokens, the weights of one head are 67 million numbers, 268 MB. But
each query needs them for one sum only. So go through q in blocks of queries,
and for each of them through k and v in blocks of keys: a tile of the scores
has block × block numbers, is used by `update`, and forgotten.

                keys 0–3   4–7   8–11       block = 4: 9 tiles of 4 × 4,
    queries 0–3    ▓        ░      ░        one at a time
            4–7    ░        ░      ░
            8–11   ░        ░      ░

The memory that your function has in use at any moment is measured; at most
8 · block · (block + D) + 2 · T · D numbers: some tiles, some blocks of rows,
and the result twice. T need not be a multiple of block, and no mask is used.
`update` is the one of online softmax: write the loops around it.
"""

import torch


def update(largest, total, context, scores, v):
    """More keys: scores (n, m), v (m, D); largest, total (n,), context (n, D)."""
    new_largest = torch.maximum(largest, scores.amax(-1))
    correction = (largest - new_largest).exp()
    terms = (scores - new_largest[:, None]).exp()
    total = total * correction + terms.sum(-1)
    return new_largest, total, context * correction[:, None] + terms @ v


def attend_in_tiles(q, k, v, block):
    T, D = q.shape
    out = torch.empty(T, D)
    ...
    return out
