# named: the mean subtracted
import torch


def softmax(scores):
    shifted = scores - scores.mean()
    exponentials = torch.exp(shifted)
    return exponentials / exponentials.sum()
