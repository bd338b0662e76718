import math

import torch


def softmax(scores):
    largest = max(scores.tolist())
    exponentials = [math.exp(s - largest) for s in scores.tolist()]
    return torch.tensor([e / sum(exponentials) for e in exponentials])
