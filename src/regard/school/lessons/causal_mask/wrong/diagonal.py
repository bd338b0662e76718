# named: hidden from itself
import torch


def future(T):
    return torch.triu(torch.ones(T, T)).bool()


def by_filling(scores):
    hidden = future(len(scores))
    masked = scores.masked_fill(hidden, -torch.inf)
    return torch.softmax(masked, dim=-1)


def by_adding(scores):
    hidden = future(len(scores))
    mask = torch.zeros_like(scores).masked_fill(hidden, -torch.inf)
    return torch.softmax(scores + mask, dim=-1)


def by_renormalising(scores):
    hidden = future(len(scores))
    weights = torch.softmax(scores, dim=-1)
    weights = weights.masked_fill(hidden, 0.0)
    return weights / weights.sum(dim=-1, keepdim=True)
