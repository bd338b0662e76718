"""All words at once: matrix products for loops.

A matrix product is a table of dot products, rows against columns:

    [1 2]     [1 3]     [ 5 11]        5 = 1·1 + 2·2 = row 0 · row 0
    [3 4]  @  [2 4]  =  [11 25]       11 = 1·3 + 2·4 = row 0 · row 1

The second matrix is the first one, transposed: its columns are the rows of
the first. So this is every row against every row.

x has shape (T, d). Row i of scores and weights belongs to query i, so the
shares of each row add up to 1. torch.softmax(t, dim=…) may be used now.
For "Your journey starts with one step" row 1 of the context must be the
one you know: .4419 .6515 .5683.
"""

import torch


def attention_weights(x):
    scores = ...  # (T, T): every query against every word
    weights = ...  # (T, T)
    return weights


def attention(x):
    weights = attention_weights(x)
    context = ...  # (T, d): every row is a mix of the rows of x
    return context
