"""Embeddings: what the token is, and where it stands."""

import torch


def embed(ids, token_table, position_table):
    B, T = ids.shape
    return token_table[ids] + position_table[:T]


# Without position vectors and without a mask, attention reads "dog bites man"
# and "man bites dog". What does it return for the token "bites"?
#   "a"  something else for each, because the keys come in another order
#   "b"  the same for both, because it adds up the same terms
#   "c"  something else for each, because "bites" has other neighbours
order = "b"


if __name__ == "__main__":
    tokens = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    positions = torch.tensor([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]])
    print(embed(torch.tensor([[2, 0, 2]]), tokens, positions))
