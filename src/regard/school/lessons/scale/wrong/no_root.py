# named: missing root
import torch


def attention(q, k, v):
    head_dim = q.shape[-1]
    scores = q @ k.mT
    weights = torch.softmax(scores / head_dim, dim=-1)
    return weights @ v
