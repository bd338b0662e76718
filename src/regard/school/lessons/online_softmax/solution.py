"""Online softmax: attention that reads keys in blocks."""

import torch


def update(largest, total, context, scores, v):
    # largest, total (T,), context (T, D); new: scores (T, n), v (n, D)
    new_largest = torch.maximum(largest, scores.amax(-1))  # (T,)
    correction = (largest - new_largest).exp()  # (T,): for the old sums
    terms = (scores - new_largest[:, None]).exp()  # (T, n)
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
