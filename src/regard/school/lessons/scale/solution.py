import torch


def attention(q, k, v):  # (B, T, D), (B, S, D), (B, S, D)
    head_dim = q.shape[-1]
    scores = q @ k.mT  # (B, T, S): every query against every key
    weights = torch.softmax(scores / head_dim**0.5, dim=-1)  # (B, T, S)
    return weights @ v  # (B, T, D): values, mixed
