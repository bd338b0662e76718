import torch


def future(T):
    keys = range(T)
    return torch.tensor([[key > query for key in keys] for query in keys])


def by_filling(scores):
    masked = scores.clone()
    for i in range(len(scores)):
        masked[i, i + 1 :] = -torch.inf
    return torch.softmax(masked, dim=-1)


def by_adding(scores):
    visible = (~future(len(scores))).float()
    return torch.softmax(scores + visible.log(), dim=-1)  # log(0) is −∞


def by_renormalising(scores):
    weights = torch.softmax(scores, dim=-1) * ~future(len(scores))
    return torch.nn.functional.normalize(weights, p=1, dim=-1)
