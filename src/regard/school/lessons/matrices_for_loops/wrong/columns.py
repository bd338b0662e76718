# named: softmax over the columns
import torch


def attention_weights(x):
    scores = x @ x.T
    weights = torch.softmax(scores, dim=0)
    return weights


def attention(x):
    weights = attention_weights(x)
    context = weights @ x
    return context
