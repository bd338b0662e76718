"""Mistakes in joining the heads, and in the output projection."""

from __future__ import annotations

from torch import Tensor

from regard.mistakes.formula import Case, merge_alternating
from regard.mistakes.mistake import Mistake, with_heads


def _without_transpose(context: Tensor, case: Case) -> Tensor:
    B, H, T, D = context.shape
    return context.reshape(B, T, H * D)


def _numbers_before_tokens(context: Tensor, case: Case) -> Tensor:
    B, H, T, D = context.shape
    return context.transpose(2, 3).reshape(B, T, H * D)


def _tokens_first(context: Tensor, case: Case) -> Tensor:
    B, H, T, D = context.shape
    return context.permute(2, 0, 1, 3).reshape(B, T, H * D)


def _averaged(context: Tensor, case: Case) -> Tensor:
    return context.mean(1)


def _summed(context: Tensor, case: Case) -> Tensor:
    return context.sum(1)


def _no_output(concat: Tensor, case: Case) -> Tensor:
    return concat


def _with_output(case: Case) -> bool:
    return "out_proj" in case.projections


def _transposed_output(concat: Tensor, case: Case) -> Tensor:
    weight, bias = case.projections["out_proj"]
    return concat @ weight + (0 if bias is None else bias)


def _with_square_output(case: Case) -> bool:
    return _with_output(case) and len(set(case.projections["out_proj"].weight.shape)) == 1


_JOIN = "concat = context.transpose(1, 2).contiguous().view(B, T, num_heads * head_dim)"
_RESHAPE_WHY = (
    "reshape gives any shape that is asked for, whatever the order of the axes; T must stand before H first, by "
    "transpose(1, 2)."
)

MISTAKES = (
    Mistake(
        "merge without transposing back",
        "merge",
        _without_transpose,
        "concat",
        "The heads are joined as (B, {num_heads}, T, {head_dim}) by view or reshape, which mixes tokens.",
        _RESHAPE_WHY,
        _JOIN,
        with_heads,
    ),
    Mistake(
        "reshape that hides a wrong merge",
        "merge",
        merge_alternating,
        "concat",
        "The heads are joined as (B, T, {head_dim}, {num_heads}): the numbers of the heads alternate, "
        "and reshape hides it.",
        "The output projection expects head 0 whole, then head 1: "
        "transpose(1, 2) alone brings (B, H, T, D) to (B, T, H, D).",
        _JOIN,
        with_heads,
    ),
    Mistake(
        "reshape that hides a wrong merge",
        "merge",
        _numbers_before_tokens,
        "concat",
        "The heads are joined as (B, {num_heads}, {head_dim}, T) by reshape, which mixes tokens.",
        _RESHAPE_WHY,
        _JOIN,
        with_heads,
        rare=True,
    ),
    Mistake(
        "reshape that hides a wrong merge",
        "merge",
        _tokens_first,
        "concat",
        "The heads are joined as (T, B, {num_heads}, {head_dim}) by reshape, which mixes the texts of the batch.",
        _RESHAPE_WHY,
        _JOIN,
        lambda case: with_heads(case) and len(case.x) > 1,
        rare=True,
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
        "transposed weights",
        "output",
        _transposed_output,
        "out",
        "The joined heads are multiplied by the weight as nn.Linear stores it, (out, in); nn.Linear itself computes "
        "concat @ weight.T.",
        "The layer still runs where the weight is square, but weights from elsewhere give other numbers.",
        "return self.out_proj(concat)  # or concat @ self.out_proj.weight.T",
        _with_square_output,
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
