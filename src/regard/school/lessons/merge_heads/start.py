"""Put the heads together again.

Each head has mixed its own part of the vectors. Merging is splitting
backwards. With 2 heads and 3 words:

    head 0:     head 1:           one vector for each word:
    [0 1]       [ 2  3]           [ 0  1  2  3]
    [4 5]       [ 6  7]           [ 4  5  6  7]
    [8 9]       [10 11]           [ 8  9 10 11]

The heads are put side by side, not added and not averaged: nothing that a
head found is lost. context has shape (B, num_heads, T, head_dim).
Remember the last exercise: after a transpose, view needs contiguous.
"""

import torch


def merge_heads(context):
    B, num_heads, T, head_dim = context.shape
    context = ...  # (B, T, num_heads, head_dim)
    return ...  # (B, T, num_heads · head_dim)
