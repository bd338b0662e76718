"""Rung 4, multi-head attention: several heads look for different things at once.

What goes wrong without it: one softmax gives one set of shares. *mat* needs to know what is on it and which word says
where: one head hands over a blend of *cat* and *on*, which is neither. Two heads hand over both, side by side.

Adds to rung 3: the width is split into num_heads heads of head_dim = d_out / num_heads, each with its own weights;
their contexts are joined again, and out_proj mixes them. The scale is √head_dim, the length of the vectors that are
compared, not √d_out.

The wrapper does it the obvious way, a list of single heads. The layer below it computes all heads in one product, and
adds out_proj: split with view, put the heads side by side with transpose, attend, and go back the same way.

Shapes: B texts, H heads, T words, D = head_dim numbers per word and head. Where queries and keys may differ in number,
as in regard.MultiHeadAttention, T counts the queries and S the keys; E is the width of a whole model.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.ladder.causal import CausalAttention
from regard.steps import step
from regard.support.arguments import (
    check_dropout,
    check_heads,
    check_length,
    check_whole,
    check_width,
    explain_wrong_call,
)


class MultiHeadAttentionWrapper(nn.Module):
    """Heads as a list, run one after the other: easy to read, slow to run. The result is num_heads × d_out wide.

    >>> wrapper = MultiHeadAttentionWrapper(d_in=3, d_out=2, context_length=6, dropout=0.0, num_heads=2)
    >>> wrapper(torch.rand(1, 6, 3)).shape
    torch.Size([1, 6, 4])
    """

    @explain_wrong_call
    def __init__(
        self, d_in: int, d_out: int, context_length: int, dropout: float, num_heads: int, qkv_bias: bool = False
    ) -> None:
        super().__init__()
        check_whole(num_heads=num_heads)
        self.heads = nn.ModuleList(
            CausalAttention(d_in, d_out, context_length, dropout, qkv_bias) for _ in range(num_heads)
        )

    def forward(self, x: Float[Tensor, "B T d_in"]) -> Float[Tensor, "B T width"]:
        """Run every head and join their contexts."""
        return step("concat", torch.cat([head(x) for head in self.heads], dim=-1))


class MultiHeadAttention(nn.Module):
    """All heads at once, as in GPT-2.

    >>> attention = MultiHeadAttention(d_in=8, d_out=8, context_length=6, dropout=0.0, num_heads=2)
    >>> attention(torch.rand(1, 6, 8)).shape
    torch.Size([1, 6, 8])
    """

    @explain_wrong_call
    def __init__(
        self, d_in: int, d_out: int, context_length: int, dropout: float, num_heads: int, qkv_bias: bool = False
    ) -> None:
        super().__init__()
        check_whole(d_in=d_in, d_out=d_out, context_length=context_length, num_heads=num_heads)
        check_heads(d_out, num_heads)
        check_dropout(dropout)
        self.d_in, self.d_out, self.context_length = d_in, d_out, context_length
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        future = torch.ones(context_length, context_length, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("mask", future, persistent=False)
        self.mask: Tensor

    def forward(self, x: Float[Tensor, "B T d_in"]) -> Float[Tensor, "B T d_out"]:
        """Project, split, transpose, attend, concat, project."""
        check_width(x, self.d_in)
        B, T, _ = step("x", x).shape
        H, D = self.num_heads, self.head_dim
        check_length(T, self.context_length)

        # Project: one product makes the queries of all heads.
        queries = step("queries", self.W_query(x))  # (B, T, d_out)
        keys = step("keys", self.W_key(x))
        values = step("values", self.W_value(x))

        # Split: view reads the same memory as H vectors of D numbers.
        q = step("split", queries.view(B, T, H, D))  # (B, T, H, D)
        k = step("split keys", keys.view(B, T, H, D))
        v = step("split values", values.view(B, T, H, D))

        # Transpose: `@` takes the last two axes, and those before are a pile of separate problems: B × H of T × D.
        q = step("transpose", q.transpose(1, 2))  # (B, H, T, D)
        k = step("transpose keys", k.transpose(1, 2))
        v = step("transpose values", v.transpose(1, 2))

        # Attend: rung 3, for every head at once.
        scores = step("scores", q @ k.mT)  # (B, H, T, T)
        masked = step("mask", scores.masked_fill(self.mask[:T, :T], -torch.inf))
        scaled = step("scaled", masked / D**0.5)
        weights = step("weights", torch.softmax(scaled, dim=-1))
        kept = step("dropout", self.dropout(weights))
        context = step("context", kept @ v)  # (B, H, T, D)

        # Concat: transpose only changed the strides; view needs memory in order, so contiguous copies it there.
        heads = step("back", context.transpose(1, 2))  # (B, T, H, D)
        concat = step("concat", heads.contiguous().view(B, T, self.d_out))  # (B, T, d_out)

        # Project: until here each head owns D columns; here a number takes from all of them for the first time.
        return step("out", self.out_proj(concat))  # (B, T, d_out)
