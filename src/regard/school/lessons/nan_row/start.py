"""The NaN row: a query that may look at nothing.

Hide all keys of a query, as happens with padding, and its softmax is 0 / 0:

    scores        may_attend            weights
    [1.0, 2.0]    [True,  False]        [1.0, 0.0]
    [1.0, 2.0]    [False, False]        [nan, nan]

One NaN turns every number computed from it into NaN, in the end the whole
model. Here the rule is: a row that may attend to nothing gives 0.

Mend weights_of. All other rows must still sum to 1, and the gradient
must be free of NaN too.
"""

import torch


def weights_of(scores, may_attend):  # (T, S) each; True = may attend
    scores = scores.masked_fill(~may_attend, -torch.inf)
    return scores.softmax(dim=-1)


def gradient(scores, may_attend):
    """The gradient for the scores. The check calls this: leave it."""
    scores = scores.clone().requires_grad_()
    weights_of(scores, may_attend).square().sum().backward()
    return scores.grad
