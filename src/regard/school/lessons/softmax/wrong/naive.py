# named: overflow
import torch


def softmax(scores):
    exponentials = torch.exp(scores)
    return exponentials / exponentials.sum()
