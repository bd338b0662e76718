# named: the smallest subtracted
import torch


def softmax(scores):
    shifted = scores - scores.min()
    exponentials = torch.exp(shifted)
    return exponentials / exponentials.sum()
