# named: all axes swapped
import torch


def attention(q, k, v):
    head_dim = q.shape[-1]
    scores = q @ k.T
    weights = torch.softmax(scores / head_dim**0.5, dim=-1)
    return weights @ v
