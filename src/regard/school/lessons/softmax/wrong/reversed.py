# named: sign reversed
import torch


def softmax(scores):
    shifted = scores.max() - scores
    exponentials = torch.exp(shifted)
    return exponentials / exponentials.sum()
