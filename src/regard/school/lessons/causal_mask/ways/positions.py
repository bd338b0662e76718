import torch


def future(T):
    position = torch.arange(T)
    return position[None, :] > position[:, None]  # key > query


def by_filling(scores):
    return torch.where(future(len(scores)), -torch.inf, scores).softmax(-1)


def by_adding(scores):
    mask = torch.full_like(scores, -torch.inf).triu(1)
    return (scores + mask).softmax(-1)


def by_renormalising(scores):
    shares = scores.softmax(-1).tril()
    return shares / shares.sum(-1, keepdim=True)
