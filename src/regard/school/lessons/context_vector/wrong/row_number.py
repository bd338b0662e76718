# named: number of the row instead of the row
import torch


def dot(a, b):
    return (a * b).sum()


def softmax(scores):
    exponentials = torch.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def context_of(x, query):
    scores = torch.zeros(len(x))
    for i in range(len(x)):
        scores[i] = dot(x[i], query)
    weights = softmax(scores)
    context = torch.zeros(x.shape[1])
    for i in range(len(x)):
        context += weights[i] * x[i]
    return context
