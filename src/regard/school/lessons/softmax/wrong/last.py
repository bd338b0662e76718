# named: the last subtracted
import torch


def softmax(scores):
    shifted = scores - scores[-1]
    exponentials = torch.exp(shifted)
    return exponentials / exponentials.sum()
