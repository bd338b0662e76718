# named: divided instead of shifted
import torch


def softmax(scores):
    shifted = scores / scores.max()
    exponentials = torch.exp(shifted)
    return exponentials / exponentials.sum()
