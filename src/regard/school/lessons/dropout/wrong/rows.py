# named: whole rows
import torch


def dropout(weights, p, training):
    if not training:
        return weights
    keep = torch.rand(len(weights), 1) >= p
    return weights * keep / (1 - p)
