# named: standard deviation
import torch


def variance_of_scores(head_dim):
    q = torch.randn(2000, head_dim)
    k = torch.randn(2000, head_dim)
    scores = (q * k).sum(dim=-1)
    return scores.std()


divided_by = "b"
