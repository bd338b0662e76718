# named: dropout outside training
import torch


def dropout(weights, p, training):
    keep = torch.rand_like(weights) >= p
    return weights * keep / (1 - p)
