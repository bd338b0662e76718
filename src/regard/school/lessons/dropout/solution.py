import torch


def dropout(weights, p, training):
    if not training:
        return weights
    keep = torch.rand_like(weights) >= p  # True with probability 1 − p, for each weight separately
    return weights * keep / (1 - p)
