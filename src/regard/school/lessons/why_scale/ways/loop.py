import torch


def variance_of_scores(head_dim):
    scores = []
    for _ in range(2000):
        scores.append(torch.randn(head_dim) @ torch.randn(head_dim))
    return torch.stack(scores).var()


divided_by = "b"
