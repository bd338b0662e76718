# named: sign turned round
import torch


def softmax(scores):
    shifted = scores.max() - scores
    exponentials = torch.exp(shifted)
    return exponentials / exponentials.sum()
