# named: no softmax
import torch


def attention_weights(x):
    scores = x @ x.T
    weights = scores
    return weights


def attention(x):
    weights = attention_weights(x)
    context = weights @ x
    return context
