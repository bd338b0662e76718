"""Online softmax: attention that reads keys in blocks.

Scores 1, 3, then 2, with the values 10, 20, then 30. Keep three things:

                  largest   total                    context
    after 1, 3    3         e^(1−3) + e^0 = 1.135    .135·10 + 1·20 = 21.35
    after 2       3         1.135 + e^(2−3) = 1.503  21.35 + .368·30 = 32.39

At the end context / total = 21.55, the same as softmax([1, 3, 2]) · values.
Had the last score been 5, `largest` would become 5. What was summed up so
far was measured against 3, so it must first be multiplied by e^(3−5).
Write `update` for T queries at once, and divide at the end. It starts with
largest = −∞, total = 0, context = 0. This is what makes fused attention
possible: the T × S weights are never in memory.
"""

import torch


def update(largest, total, context, scores, v):
    # largest, total (T,), context (T, D); new: scores (T, n), v (n, D)
    new_largest = ...  # (T,)
    correction = ...  # (T,): for the old sums
    terms = ...  # (T, n)
    ...
    return new_largest, total, context


def attend_in_blocks(q, k, v, block):
    T, D = q.shape
    largest = torch.full((T,), -torch.inf)
    total, context = torch.zeros(T), torch.zeros(T, D)
    for start in range(0, len(k), block):
        scores = q @ k[start : start + block].T / D**0.5
        values = v[start : start + block]
        largest, total, context = update(largest, total, context, scores, values)
    return ...  # (T, D)
