"""Cross-attention: queries from one text, keys and values from another.

A translator that writes T words looks at the S words of the original:

    x (B, T, E)       "the cat"            T = 2, what is written
    other (B, S, E)   "le petit chat"      S = 3, what is read
    weights (B, T, S)                      a row of 3 weights for each of 2

Each word of x asks; the words of `other` answer. Write the five lines, for
one head: q, k, v, the weights, and the output, (B, T, D). Nothing is
hidden: the original is known from its first to its last word.
"""

import torch


def cross_attention(x, other, W_query, W_key, W_value):  # W: (E, D)
    q = ...
    k = ...
    v = ...
    weights = ...
    return ...
