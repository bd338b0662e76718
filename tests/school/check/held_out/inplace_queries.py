import torch


def attention(q, k, v):
    """q, k, v: (batch, heads, tokens, head_dim)"""
    q /= q.shape[-1] ** 0.5
    weights = torch.softmax(q @ k.mT, dim=-1)
    return weights @ v
