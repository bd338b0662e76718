"""Dropout on the weights.

While training, each weight is set to 0 with probability p, so that no word
can rely on one other word alone. The rest is divided by 1 − p, so that
the sum stays the same on average:

    weights        0.2   0.5   0.3
    keep          True False  True       p = 0.5
    dropped        0.4   0.0   0.6

When the model is used, not trained, the weights stay as they are.
torch.rand_like(t) gives random numbers between 0 and 1 in the shape of t.
Write it yourself, this once: no nn.Dropout.
"""

import torch


def dropout(weights, p, training):
    if not training:
        return ...
    keep = ...  # True with probability 1 − p, for each weight separately
    return ...
