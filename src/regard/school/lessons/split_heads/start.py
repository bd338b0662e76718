"""Several heads: split the vectors.

One head has one set of weights for each word. Two heads can look at two
places at once; each works on its own part of the vectors. With 2 heads,

    x, 1 text of 3 words:    head 0:      head 1:
    [ 0  1  2  3]            [0 1]        [ 2  3]
    [ 4  5  6  7]            [4 5]        [ 6  7]
    [ 8  9 10 11]            [8 9]        [10 11]

x has shape (B, T, E), where E = num_heads · head_dim. The result has shape
(B, num_heads, T, head_dim): heads stand beside the batch, so that `@`
treats every head separately. First split the last axis, then swap two axes.

Useful: x.view(…), x.transpose(…, …).
"""

import torch


def split_heads(x, num_heads):
    B, T, E = x.shape
    head_dim = ...
    x = ...  # (B, T, num_heads, head_dim)
    return ...  # (B, num_heads, T, head_dim)
