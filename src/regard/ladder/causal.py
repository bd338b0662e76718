"""Rung 3, causal attention: a word may look back, never ahead.

What goes wrong without it: in training, all T words predict their next word at once. Without a mask each reads the
answer beside it, the loss falls to nearly 0, and what the model writes alone is nonsense: then there is nothing beside.

Adds to rung 2: a mask sets every score of the future to −∞, which softmax turns into a weight of exactly 0; and
dropout sets some weights to 0 while training, so that no word can rely on one other. What is left is scaled up, so
that a row still sums to 1 on average.

weights = dropout(softmax(mask(queries · keysᵀ) / √d_k)); context = weights · values.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.steps import step
from regard.support.arguments import check_dropout, check_length, check_whole, check_width, explain_wrong_call


class CausalAttention(nn.Module):
    """One head that cannot see the future.

    >>> attention = CausalAttention(d_in=3, d_out=2, context_length=6, dropout=0.0)
    >>> attention(torch.rand(2, 6, 3)).shape
    torch.Size([2, 6, 2])
    """

    @explain_wrong_call
    def __init__(self, d_in: int, d_out: int, context_length: int, dropout: float, qkv_bias: bool = False) -> None:
        super().__init__()
        check_whole(d_in=d_in, d_out=d_out, context_length=context_length)
        check_dropout(dropout)
        self.d_in, self.context_length = d_in, context_length
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)
        # True above the diagonal: the future. A buffer moves with .to(device); it follows from context_length,
        # so it is not saved.
        future = torch.ones(context_length, context_length, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("mask", future, persistent=False)
        self.mask: Tensor

    def forward(self, x: Float[Tensor, "B T d_in"]) -> Float[Tensor, "B T d_out"]:
        """Mix the values of each word's past by how well its query matches their keys."""
        check_width(x, self.d_in)
        T = x.shape[1]
        check_length(T, self.context_length)
        step("x", x)
        queries = step("queries", self.W_query(x))  # (B, T, d_out)
        keys = step("keys", self.W_key(x))
        values = step("values", self.W_value(x))

        d_k = keys.shape[-1]
        scores = step("scores", queries @ keys.mT)  # (B, T, T)
        masked = step("mask", scores.masked_fill(self.mask[:T, :T], -torch.inf))
        scaled = step("scaled", masked / d_k**0.5)
        weights = step("weights", torch.softmax(scaled, dim=-1))
        kept = step("dropout", self.dropout(weights))
        return step("context", kept @ values)  # (B, T, d_out)


CausalSelfAttention = CausalAttention
