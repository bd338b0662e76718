import torch


def dropout(weights, p, training):
    if training:
        keep = torch.bernoulli(torch.full_like(weights, 1 - p))  # 1 or 0
        weights = weights * keep / (1 - p)
    return weights
