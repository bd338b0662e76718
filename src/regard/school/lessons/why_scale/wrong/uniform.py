# named: rand instead of randn
import torch


def variance_of_scores(head_dim):
    q = torch.rand(2000, head_dim)
    k = torch.rand(2000, head_dim)
    scores = (q * k).sum(dim=-1)
    return scores.var()


divided_by = "b"
