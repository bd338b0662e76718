"""Rarer mistakes in a layer, for exercises in which much stands still: more than those that every check tries.

They are told where the layer gives the same numbers, and tried alone, never in pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.mistakes.formula import Case, compare_all, merge, normalise
from regard.mistakes.mistake import Mistake, with_heads, with_mask

JOIN = "concat = context.transpose(1, 2).contiguous().view(B, T, -1)"
WEIGH = "weights = torch.softmax(scores / self.head_dim**0.5, dim=-1)"
HIDE = "scores = scores.masked_fill(self.mask[:T, :T], -torch.inf)"
SIDE_BY_SIDE = "The heads are joined side by side: what each found has its own place, where out_proj finds it."


def _slip(name: str, step: str, act: Callable[..., Any], shows: str, says: str, why: str, fix: str) -> Mistake:
    applies = with_mask if step == "hide" else with_heads
    return Mistake(name, step, act, shows, says, why, fix, applies, rare=True)


def _joined_as(*order: int) -> Callable[[Tensor, Case], Tensor]:
    """The heads (B, H, T, D), with their axes in this order, taken for (B, T, H × D)."""
    return lambda context, case: context.permute(order).reshape(len(context), context.shape[2], -1)


def _by_memory(t: Tensor, case: Case) -> Tensor:
    """(B, H, T, D) as view(B, H, T, D) makes it of the vectors, without a transpose."""
    return t.transpose(1, 2).reshape(t.shape)


def _one_row_of_weights(scores: Tensor, case: Case) -> Tensor:
    weights = normalise(scores, case)
    return weights.mean(1, keepdim=True).expand_as(weights)


def _repeated(context: Tensor, case: Case) -> Tensor:
    return context.repeat(1, 1, case.num_heads)


def _unit(t: Tensor) -> Tensor:
    return F.normalize(t, dim=-1)


SLIPS = (
    _slip(
        "heads summed, and the sum repeated",
        "merge",
        lambda context, case: _repeated(context.sum(1), case),
        "concat",
        "The heads are summed, and the sum stands {num_heads} times side by side.",
        SIDE_BY_SIDE,
        JOIN,
    ),
    _slip(
        "heads averaged, and the mean repeated",
        "merge",
        lambda context, case: _repeated(context.mean(1), case),
        "concat",
        "The heads are averaged, and the mean stands {num_heads} times side by side.",
        SIDE_BY_SIDE,
        JOIN,
    ),
    *(
        _slip(
            name,
            "merge",
            lambda context, case, change=change: merge(change(context), case),
            "concat",
            says,
            "The output projection was trained with head 0 first, then head 1, for each token.",
            JOIN,
        )
        for name, says, change in (
            ("heads in the reverse order", "The last head stands first, the first one last.", lambda c: c.flip(1)),
            ("heads shifted", "The last head stands before the first.", lambda c: c.roll(1, 1)),
            ("heads shifted back", "The first head stands behind the last.", lambda c: c.roll(-1, 1)),
            ("tokens reversed", "The last token stands first.", lambda c: c.flip(2)),
            ("one head for all", "The first head stands in the place of all.", lambda c: c[:, :1].expand_as(c)),
        )
    ),
    *(
        _slip(
            f"heads joined as (B, {axes})",
            "merge",
            _joined_as(*order),
            "concat",
            f"The heads are joined as (B, {axes}) by reshape, which mixes tokens.",
            "reshape gives any shape that is asked for; T must stand before H first, by transpose(1, 2).",
            JOIN,
        )
        for axes, order in (("D, T, H", (0, 3, 2, 1)), ("D, H, T", (0, 3, 1, 2)))
    ),
    *(
        _slip(
            f"{what} split without transpose",
            step,
            _by_memory,
            "split",
            f"Only the {what} are cut by view(B, {{num_heads}}, T, {{head_dim}}), which gives a head whole vectors of "
            "some tokens.",
            "view never moves a number: split the last axis, then exchange tokens and heads by transpose(1, 2).",
            "k = self.W_key(x).view(B, T, num_heads, head_dim).transpose(1, 2)",
        )
        for what, step in (("keys", "share"), ("values", "share_values"))
    ),
    _slip(
        "weights averaged over the heads",
        "normalise",
        _one_row_of_weights,
        "weights",
        "All heads use one table of weights, the mean of theirs.",
        "Each head looks at places of its own; that is what several heads are for.",
        WEIGH,
    ),
    _slip(
        "queries of unit length",
        "compare",
        lambda q, k, case: compare_all(_unit(q), k, case),
        "scores",
        "The queries are brought to length 1, which the formula does not do.",
        "The length of a query says how sure it is; the formula keeps it.",
        "scores = q @ k.mT",
    ),
    _slip(
        "queries and keys of unit length",
        "compare",
        lambda q, k, case: compare_all(_unit(q), _unit(k), case),
        "scores",
        "Queries and keys are brought to length 1, which the formula does not do.",
        "Their lengths say how sure a query is, and how important a key; the formula keeps them.",
        "scores = q @ k.mT",
    ),
    Mistake(
        "scores of the future set to 0",
        "bend",
        lambda scores, case: scores.tril(),
        "scaled",
        "The scores of later tokens become 0, and nothing is to be hidden here.",
        "A score of 0 hides nothing, either: exp(0) = 1 is a share as any other.",
        WEIGH,
        lambda case: not with_mask(case) and case.x.shape[1] > 1,
        rare=True,
    ),
    Mistake(
        "heads behind the tokens, and no mask",
        "split",
        lambda t, case: t.unflatten(-1, (-1, case.head_dim)),
        "scores",
        "The heads stay behind the tokens, (B, T, {num_heads}, {head_dim}), and no mask is used: the scores compare "
        "the {num_heads} heads of one token with each other.",
        "Matrix products work on the last two axes: those must be tokens and head_dim, which needs transpose(1, 2).",
        "q = q.view(B, T, num_heads, head_dim).transpose(1, 2)",
        lambda case: with_heads(case) and with_mask(case) and case.num_heads != len(case.visible()),
        rare=True,
        also={"merge": lambda context, case: context.flatten(2), "see": lambda case: torch.ones(1, 1).bool()},
    ),
    *(
        _slip(
            f"mask value too small before the scale: −{value}",
            "hide",
            lambda scores, visible, case, value=value: scores.masked_fill(~visible, -value / case.head_dim**0.5),
            "mask",
            f"Hidden scores become −{value}, and are scaled then: hidden tokens are still seen.",
            "Only −∞, or a number that no score reaches, gives a weight of 0.",
            HIDE,
        )
        for value in (1, 2, 5, 10)
    ),
)
