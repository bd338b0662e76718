# named: not scaled
import torch


def dropout(weights, p, training):
    if not training:
        return weights
    keep = torch.rand_like(weights) >= p
    return weights * keep
