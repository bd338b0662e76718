import torch


def future(T):
    return torch.tensor([[key > query for key in range(T)] for query in range(T)])


def by_filling(scores):
    masked = scores.clone()
    for i in range(len(scores)):
        masked[i, i + 1 :] = -torch.inf
    return torch.softmax(masked, dim=-1)


def by_adding(scores):
    return torch.softmax(scores + torch.log((~future(len(scores))).float()), dim=-1)


def by_renormalising(scores):
    exponentials = torch.exp(scores) * ~future(len(scores))
    return torch.nn.functional.normalize(exponentials, p=1, dim=-1)
