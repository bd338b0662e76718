# named: added up along the wrong axis
import torch


def variance_of_scores(head_dim):
    q = torch.randn(2000, head_dim)
    k = torch.randn(2000, head_dim)
    scores = (q * k).sum(dim=0)
    return scores.var()


divided_by = "b"
