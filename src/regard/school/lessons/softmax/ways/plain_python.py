import torch


def softmax(scores):
    from math import exp

    largest = max(scores.tolist())
    exponentials = [exp(s - largest) for s in scores.tolist()]
    return torch.tensor([e / sum(exponentials) for e in exponentials])
