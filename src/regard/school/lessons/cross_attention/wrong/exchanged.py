# named: texts exchanged
import torch


def cross_attention(x, other, W_query, W_key, W_value):  # each W is (E, D): x @ W
    q = other @ W_query  # (B, T, D)
    k = x @ W_key  # (B, S, D)
    v = x @ W_value  # (B, S, D)
    weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)  # (B, T, S)
    return weights @ v
