import torch


def weights_of(scores, may_attend):  # (T, S) each; True = may attend
    shares = (scores - scores.amax(dim=-1, keepdim=True)).exp() * may_attend
    return shares / shares.sum(dim=-1, keepdim=True).clamp(min=1e-9)


def gradient(scores, may_attend):
    """The gradient for the scores. The check calls this: leave it."""
    scores = scores.clone().requires_grad_()
    weights_of(scores, may_attend).square().sum().backward()
    return scores.grad
