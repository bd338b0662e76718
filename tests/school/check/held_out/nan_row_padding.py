import torch
import torch.nn.functional as F


def attention(q, k, v, mask=None):
    # mask: bool, True = visible
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    return weights @ v
