import torch


def project(x, W_query, W_key, W_value):
    W = torch.cat([W_query, W_key, W_value], dim=1)  # (d_in, 3 · d_out)
    return (x @ W).chunk(3, dim=1)


def scores(q, k):
    return torch.einsum("id,jd->ij", q, k)
