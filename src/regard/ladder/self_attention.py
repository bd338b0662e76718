"""Rung 2, self-attention: what a word looks for, what it offers and what it hands over are learned apart.

What goes wrong without it: in rung 1 nothing can learn, and one vector has three jobs. In *The cat was tired, so it
slept*, *it* looks for a noun; *cat* is filed under nouns, and hands over what it knows of cats. Two different words
with equal vectors would have to look for, offer and hand over the same.

Adds to rung 1: three trainable matrices make queries, keys and values of x; and scores are divided by √d_k, where
d_k = d_out is how many numbers a query has. If queries and keys hold independent numbers of mean 0 and variance 1, a
product of two has variance 1, and the sum of d_k of them d_k. At d_k = 64 scores of ±8 are ordinary, and e⁸ is 3,000:
one key would take everything, and the others no gradient. Divided by √d_k, the variance is 1 again.

weights = softmax(queries · keysᵀ / √d_k); context = weights · values.

From here on x has three axes, (B, T, d_in): B texts in a batch, T words each, d_in numbers per word. Matrix products
work on the last two axes and repeat for every text of the batch.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.steps import step
from regard.support.arguments import check_whole, check_width, explain_wrong_call


class SelfAttention(nn.Module):
    """One head, no mask: every word may look at every word.

    >>> attention = SelfAttention(d_in=3, d_out=2)
    >>> attention(torch.rand(1, 6, 3)).shape
    torch.Size([1, 6, 2])
    """

    @explain_wrong_call  # a call with other arguments is answered with one that works
    def __init__(self, d_in: int, d_out: int, qkv_bias: bool = False) -> None:
        super().__init__()
        check_whole(d_in=d_in, d_out=d_out)
        self.d_in = d_in
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)

    def forward(self, x: Float[Tensor, "B T d_in"]) -> Float[Tensor, "B T d_out"]:
        """Mix the values of x by how well queries match keys."""
        check_width(x, self.d_in)
        step("x", x)
        queries = step("queries", self.W_query(x))  # (B, T, d_out)
        keys = step("keys", self.W_key(x))
        values = step("values", self.W_value(x))

        d_k = keys.shape[-1]
        scores = step("scores", queries @ keys.mT)  # (B, T, T)
        scaled = step("scaled", scores / d_k**0.5)
        weights = step("weights", torch.softmax(scaled, dim=-1))
        return step("context", weights @ values)  # (B, T, d_out)
