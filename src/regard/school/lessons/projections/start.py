"""Queries, keys and values: three matrices for three roles.

A matrix turns every row of x, d_in numbers, into d_out new ones:

                [1 0]
    [1 2 3]  @  [0 1]  =  [1·1 + 2·0 + 3·1,  1·0 + 2·1 + 3·1]  =  [4, 5]
                [1 1]

A row of x says what a word is. W_query makes what the word looks for,
W_key what it is filed under, W_value what it hands over. The numbers in
these three matrices are what training learns.

x has shape (T, d_in), each matrix (d_in, d_out). In `scores`, every query
is compared with every key: row i belongs to query i.
"""

import torch


def project(x, W_query, W_key, W_value):
    q = ...  # (T, d_out)
    k = ...
    v = ...
    return q, k, v


def scores(q, k):
    return ...  # (T, T)
