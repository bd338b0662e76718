# named: rows divided by their sum
import torch


def dropout(weights, p, training):
    if not training:
        return weights
    keep = torch.rand_like(weights) >= p
    return weights * keep / (weights * keep).sum(dim=-1, keepdim=True)
