import torch.nn.functional as F


def dropout(weights, p, training):
    return F.dropout(weights, p, training)
