"""Turn scores into shares: softmax.

    scores      1.0   2.0   3.0
    exp         2.7   7.4  20.1     all positive; their sum is 30.2
    weights    0.09  0.24  0.67     divided by the sum: they add up to 1

The largest score gets the largest share, and none gets less than nothing.

One trap: exp(1000) is too large for a float: it becomes inf, and inf / inf is
nan. So subtract the largest score from all of them first. Then the largest
exponential is exp(0) = 1, and the shares stay the same.

scores is a tensor of shape (T,). Write it without torch.softmax, this once.
"""

import torch  # torch.exp(t), or t.exp(), works on every number of a tensor


def softmax(scores):
    shifted = ...
    exponentials = ...
    return ...
