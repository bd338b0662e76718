import torch


def project(x, W_query, W_key, W_value):
    q = x @ W_query  # (T, d_out)
    k = x @ W_key
    v = x @ W_value
    return q, k, v


def scores(q, k):
    return q @ k.T  # (T, T)
