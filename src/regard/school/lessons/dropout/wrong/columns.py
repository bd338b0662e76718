# named: the same keys for every query
import torch


def dropout(weights, p, training):
    if not training:
        return weights
    keep = torch.rand(len(weights)) >= p
    return weights * keep / (1 - p)
