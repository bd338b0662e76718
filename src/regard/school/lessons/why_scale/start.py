"""Why scale? Measure how large scores become.

The variance tells how widely numbers are spread. By hand, for 1, −2 and 4:
the mean is 1, the distances from it are 0, −3, 3, and the variance is
(0 + 9 + 9) / 2 = 9. In torch: t.var().

Take 2000 random queries and 2000 random keys of head_dim numbers each, from
torch.randn. Query i meets key i: 2000 scores. What is their variance? Run
this file (python FILE) to see it for 4, 64 and 1024, then answer:

    scores are divided by …, so that their variance is 1 for every head_dim
    a  head_dim
    b  the square root of head_dim
    c  head_dim squared
"""

import torch


def variance_of_scores(head_dim):
    q = torch.randn(2000, head_dim)
    k = ...
    scores = ...  # (2000,): raw dot products, not divided by anything
    return scores.var()


divided_by = ...  # a letter in quotes, such as "a"

if __name__ == "__main__":
    for head_dim in (4, 64, 1024):
        print(f"{head_dim:4}: variance {variance_of_scores(head_dim):.1f}")
