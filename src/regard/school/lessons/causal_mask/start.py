"""Hide the future: a causal mask, in three ways.

A model that learns to predict the next word must not read it. So query i may
look at keys 0 to i, and the weights of later keys are exactly 0. With
equal scores, for three words:

    1.00  0     0           "Your" sees itself only
    0.50  0.50  0
    0.33  0.33  0.33        each row still adds up to 1

scores is (T, T); each of the three functions returns weights (T, T).
Useful: torch.triu, torch.tril, masked_fill, torch.zeros, -torch.inf.
"""

import torch


def future(T):
    """True where the key comes after the query, and must be hidden."""
    return ...  # (T, T), bool


def by_filling(scores):
    hidden = future(len(scores))
    masked = ...  # −∞ where hidden: exp(−∞) is 0
    return torch.softmax(masked, dim=-1)


def by_adding(scores):
    hidden = future(len(scores))
    mask = ...  # (T, T): 0 where it may look, −∞ where hidden
    return torch.softmax(scores + mask, dim=-1)


def by_renormalising(scores):
    hidden = future(len(scores))
    weights = torch.softmax(scores, dim=-1)
    weights = ...  # 0 where hidden
    return ...  # each row divided by what it still adds up to
