# named: x before the weights
import torch


def attention_weights(x):
    scores = x @ x.T
    weights = torch.softmax(scores, dim=-1)
    return weights


def attention(x):
    weights = attention_weights(x)
    context = x @ weights
    return context
