"""Attention in tiles: the T × T weights are never in memory."""

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
    for start in range(0, T, block):
        queries = q[start : start + block]
        n = len(queries)
        largest = torch.full((n,), -torch.inf)
        total, context = torch.zeros(n), torch.zeros(n, D)
        for first in range(0, len(k), block):
            scores = queries @ k[first : first + block].T / D**0.5
            values = v[first : first + block]
            largest, total, context = update(largest, total, context, scores, values)
        out[start : start + block] = context / total[:, None]
    return out
