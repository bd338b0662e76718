# named: −∞ among the weights
import torch


def future(T):
    """True where the key comes after the query, and must be hidden."""
    return torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)  # (T, T), bool


def by_filling(scores):
    hidden = future(len(scores))
    masked = scores.masked_fill(hidden, -torch.inf)  # −∞ where hidden: exp(−∞) is 0
    return torch.softmax(masked, dim=-1)


def by_adding(scores):
    hidden = future(len(scores))
    mask = torch.zeros_like(scores).masked_fill(hidden, -torch.inf)
    return torch.softmax(scores + mask, dim=-1)


def by_renormalising(scores):
    hidden = future(len(scores))
    weights = torch.softmax(scores, dim=-1)
    weights = weights.masked_fill(hidden, -torch.inf)  # 0 where hidden
    return weights / weights.sum(dim=-1, keepdim=True)
