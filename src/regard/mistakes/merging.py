"""Mistakes in joining the heads, and in the output projection."""

from __future__ import annotations

from torch import Tensor

from regard.mistakes.formula import Given
from regard.mistakes.mistake import Mistake, with_heads


def _without_transpose(context: Tensor, given: Given) -> Tensor:
    B, H, T, D = context.shape
    return context.reshape(B, T, H * D)


def _numbers_first(context: Tensor, given: Given) -> Tensor:
    return context.permute(0, 2, 3, 1).flatten(2)


def _averaged(context: Tensor, given: Given) -> Tensor:
    return context.mean(1)


def _summed(context: Tensor, given: Given) -> Tensor:
    return context.sum(1)


def _no_output(concat: Tensor, given: Given) -> Tensor:
    return concat


def _with_output(given: Given) -> bool:
    return "out_proj" in given.projections


_JOIN = "concat = context.transpose(1, 2).contiguous().view(B, T, num_heads * head_dim)"

MISTAKES = (
    Mistake(
        "merge without transposing back",
        "merge",
        _without_transpose,
        "concat",
        "The heads are joined as (B, {num_heads}, T, {head_dim}) by view or reshape, which mixes tokens.",
        "reshape always finds a way to give the shape that is asked for; T must stand before H first, by transpose(1, 2).",
        _JOIN,
        with_heads,
    ),
    Mistake(
        "reshape that hides a wrong merge",
        "merge",
        _numbers_first,
        "concat",
        "The heads are joined as (B, T, {head_dim}, {num_heads}): the numbers of the heads alternate, and reshape hides it.",
        "The output projection expects head 0 whole, then head 1: transpose(1, 2) alone brings (B, H, T, D) to (B, T, H, D).",
        _JOIN,
        with_heads,
    ),
    Mistake(
        "heads averaged instead of concatenated",
        "merge",
        _averaged,
        "concat",
        "The contexts of the {num_heads} heads are averaged; they are joined side by side.",
        "Averaged, what one head found cannot be told from what another found.",
        _JOIN,
        with_heads,
    ),
    Mistake(
        "heads summed instead of concatenated",
        "merge",
        _summed,
        "concat",
        "The contexts of the {num_heads} heads are summed; they are joined side by side.",
        "Summed, what one head found cannot be told from what another found.",
        _JOIN,
        with_heads,
    ),
    Mistake(
        "unused output projection",
        "output",
        _no_output,
        "out",
        "The joined heads are returned as they are; the output projection is not applied.",
        "Until the output projection, no head has seen what another found.",
        "return self.out_proj(concat)",
        _with_output,
    ),
)
