"""The output projection: heads share what they found.

After merging, a vector holds the heads side by side. One more matrix mixes
them: every number of the output may take from every head.

    out = merged · weightᵀ + bias        as nn.Linear(E, E) computes it

The same in parts. For 2 heads of 1 number, weight [[1, 2], [3, 4]]:

    merged [10, 1]    out = [1·10 + 2·1, 3·10 + 4·1] = [12, 34]
    head 0 adds       [1·10, 3·10] = [10, 30]    by column 0 of the weight
    head 1 adds       [2·1, 4·1]   = [2, 4]      by column 1

So out is the sum of what every head adds, and of the bias. weight has shape
(E, E); head h owns head_dim of its columns, one after the other.
"""

import torch


def merge_heads(context):  # (B, H, T, D) → (B, T, H · D)
    return context.transpose(1, 2).flatten(2)


def output(context, weight, bias):
    return ...  # (B, T, E)


def added_by_head(context, weight, h):
    head_dim = context.shape[-1]
    columns = ...  # (E, head_dim): the columns of the weight that head h owns
    return ...  # (B, T, E): what head h adds to the output; no bias
