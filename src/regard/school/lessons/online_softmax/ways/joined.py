"""Online softmax: attention that reads keys in blocks."""

import torch


def update(largest, total, context, scores, v):
    # largest, total (T,), context (T, D); new: scores (T, n), v (n, D)
    new_largest = torch.cat([largest[:, None], scores], -1).amax(-1)
    correction = (largest - new_largest).exp()  # (T,): for the old sums
    terms = (scores.T - new_largest).T.exp()  # (T, n)
    total = total * correction + terms.sum(-1)
    context = context * correction[:, None] + terms @ v
    return new_largest, total, context


def attend_in_blocks(q, k, v, block):
    T, D = q.shape
    largest = torch.full((T,), -torch.inf)
    total, context = torch.zeros(T), torch.zeros(T, D)
    for start in range(0, len(k), block):
        scores = q @ k[start : start + block].T / D**0.5
        values = v[start : start + block]
        largest, total, context = update(largest, total, context, scores, values)
    return context / total[:, None]
