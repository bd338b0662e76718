import torch


def scaled_dot_product(q, k, v, mask=None):
    d_k = q.size()[-1]
    attn_logits = torch.matmul(q, k.transpose(-2, -1)).abs() / d_k**0.5
    if mask is not None:
        attn_logits = attn_logits.masked_fill(mask == 0, -9e15)
    attention = torch.softmax(attn_logits, dim=-1)
    values = torch.matmul(attention, v)
    return values, attention
