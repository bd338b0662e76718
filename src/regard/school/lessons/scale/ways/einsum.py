import torch


def attention(q, k, v):
    scores = torch.einsum("btd,bsd->bts", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bts,bsd->btd", scores.softmax(-1), v)
