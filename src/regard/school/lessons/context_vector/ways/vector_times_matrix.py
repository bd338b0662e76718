import torch


def dot(a, b):
    return (a * b).sum()


def softmax(scores):
    exponentials = torch.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def context_of(x, query):
    weights = softmax(x @ x[query])  # (T,)
    return weights @ x  # (d,)
