import torch


def variance_of_scores(head_dim):
    q = torch.randn(2000, head_dim)
    k = torch.randn(2000, head_dim)
    scores = (q * k).sum(dim=-1)  # (2000,): raw dot products, not divided by anything
    return scores.var()


divided_by = "b"

if __name__ == "__main__":
    for head_dim in (4, 64, 1024):
        print(f"{head_dim:4}: variance {variance_of_scores(head_dim):.1f}")
