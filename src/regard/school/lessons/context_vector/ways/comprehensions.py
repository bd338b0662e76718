import torch


def dot(a, b):
    return (a * b).sum()


def softmax(scores):
    exponentials = torch.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def context_of(x, query):
    weights = softmax(torch.stack([dot(word, x[query]) for word in x]))
    return sum(weight * word for weight, word in zip(weights, x))
