# named: columns compared
import torch


def attention_weights(x):
    scores = x.T @ x
    weights = torch.softmax(scores, dim=-1)
    return weights


def attention(x):
    weights = attention_weights(x)
    context = weights @ x
    return context
