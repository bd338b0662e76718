import torch


def variance_of_scores(head_dim):
    q, k = torch.randn(2, 2000, head_dim)
    return torch.einsum("nd,nd->n", q, k).var()


divided_by = "b"
