"""Embeddings: what the token is, and where it stands.

A token id is a row number. Its vector is that row of a table, plus the row
of a second table that belongs to its position:

    token_table          position_table       ids [2, 0, 2]
    0  [1.0, 0.0]        0  [0.1, 0.1]        [1, 1] + [.1, .1] = [1.1, 1.1]
    1  [0.0, 1.0]        1  [0.2, 0.2]        [1, 0] + [.2, .2] = [1.2, 0.2]
    2  [1.0, 1.0]        2  [0.3, 0.3]        [1, 1] + [.3, .3] = [1.3, 1.3]

Token 2 occurs twice, and its two vectors differ. Write `embed` for ids
(B, T): all texts of a batch have the same positions, and a text may be
shorter than the position table. Then answer the question below it.
"""

import torch


def embed(ids, token_table, position_table):
    B, T = ids.shape
    ...  # (B, T) → (B, T, E)


# Without position vectors and without a mask, attention reads "dog bites man"
# and "man bites dog". What does it return for the token "bites"?
#   "a"  something else for each, because the keys come in another order
#   "b"  the same for both, because it adds up the same terms
#   "c"  something else for each, because "bites" has other neighbours
order = ...  # a letter in quotes, such as "a"


if __name__ == "__main__":
    tokens = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    positions = torch.tensor([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]])
    print(embed(torch.tensor([[2, 0, 2]]), tokens, positions))
