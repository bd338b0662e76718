# named: changed in place
import torch


def weights_of(scores, may_attend):  # (T, S) each; True = may attend
    scores = scores.masked_fill(~may_attend, -torch.inf)
    return scores.softmax(dim=-1).masked_fill_(~may_attend, 0.0)


def gradient(scores, may_attend):
    """The gradient for the scores. The check calls this: leave it."""
    scores = scores.clone().requires_grad_()
    weights_of(scores, may_attend).square().sum().backward()
    return scores.grad
