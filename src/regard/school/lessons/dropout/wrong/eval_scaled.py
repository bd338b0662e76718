# named: scaled outside training
import torch


def dropout(weights, p, training):
    if not training:
        return weights * (1 - p)
    keep = torch.rand_like(weights) >= p
    return weights * keep / (1 - p)
