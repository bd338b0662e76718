import math

import torch


def scaled_dot_product_attention(query, key, value, mask=None):
    """query, key, value: (..., seq, d_k).  mask: True where attention is allowed."""
    d_k = query.size(-1)
    scores = query @ key.transpose(-2, -1) / (1 / math.sqrt(d_k))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1) @ value
