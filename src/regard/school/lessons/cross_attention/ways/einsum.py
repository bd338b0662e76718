import torch


def cross_attention(x, other, W_query, W_key, W_value):
    q, k, v = x @ W_query, other @ W_key, other @ W_value
    scores = torch.einsum("btd,bsd->bts", q, k) / W_query.shape[1] ** 0.5
    return torch.einsum("bts,bsd->btd", scores.softmax(dim=-1), v)
