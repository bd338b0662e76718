"""Mistakes in hiding the future, and in the softmax."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.mistakes.formula import Given
from regard.mistakes.mistake import Mistake, with_heads, with_mask

LARGE = -1e9  # what people write for −∞; the same, except where a query may see nothing

_MASK_FIX = "scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf)"


def hide_large(scores: Tensor, visible: Tensor) -> Tensor:
    """As `hide`, with a large negative number: a query that may see nothing then sees everything alike."""
    return scores.masked_fill(~visible, LARGE).softmax(-1)


def hide_and_zero(scores: Tensor, visible: Tensor) -> Tensor:
    """As `hide`; a query that may see nothing gets 0."""
    return scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num(0.0)


# Right in every row that sees something.
ALTERNATIVES = (hide_large, hide_and_zero)


def _triangle(given: Given, change: Callable[[Tensor], Tensor]) -> Tensor:
    T = given.x.shape[1]
    return change(torch.ones(T, T, dtype=torch.bool))


def _softmax_over(dim: int) -> Callable[[Tensor, Tensor], Tensor]:
    def hide(scores: Tensor, visible: Tensor) -> Tensor:
        return scores.masked_fill(~visible, -torch.inf).softmax(dim)

    return hide


def _several_texts(given: Given) -> bool:
    return len(given.x) > 1


def _seen(name: str, change: Callable[[Tensor], Tensor], says: str, why: str) -> Mistake:
    return Mistake(name, "see", lambda given: _triangle(given, change), "mask", says, why, _MASK_FIX, with_mask)


def _axis(name: str, dim: int, says: str, applies: Callable[[Given], bool]) -> Mistake:
    why = "The weights of one query are shares of its attention: they sum to 1 over the keys, the last axis."
    return Mistake(name, "hide", _softmax_over(dim), "weights", says, why, "torch.softmax(scores, dim=-1)", applies)


MISTAKES = (
    _seen(
        "no causal mask",
        lambda all_of_it: all_of_it,
        "Every token sees the tokens after it; a causal layer hides them.",
        "A model that is trained to write the next token would simply read it.",
    ),
    _seen(
        "mask polarity inverted",
        lambda all_of_it: all_of_it.triu(1),
        "The mask hides the past and the token itself, and shows the future; it should be the other way round.",
        "masked_fill replaces where the mask is True: True must mean the future.",
    ),
    _seen(
        "mask polarity inverted, the diagonal kept",
        lambda all_of_it: all_of_it.triu(),
        "The mask hides the past and shows the future; it should be the other way round.",
        "masked_fill replaces where the mask is True: True must mean the future.",
    ),
    _seen(
        "mask off by one: the token itself hidden",
        lambda all_of_it: all_of_it.tril(-1),
        "A token cannot see itself, and the first sees nothing; the mask must begin one above the diagonal.",
        "The future begins with the next token: triu(diagonal=1), not triu().",
    ),
    _seen(
        "mask off by one: one future token seen",
        lambda all_of_it: all_of_it.tril(1),
        "A token sees the one after it; the mask must begin one above the diagonal.",
        "One visible future token is the very one that a model should predict.",
    ),
    Mistake(
        "mask after softmax without renormalising",
        "hide",
        lambda scores, visible: scores.softmax(-1) * visible,
        "weights",
        "Weights of hidden tokens are set to 0 after the softmax, so rows no longer sum to 1.",
        "The softmax has already shared attention with the hidden tokens; what is left is too small.",
        "weights = torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)",
        with_mask,
    ),
    Mistake(
        "wrong sign of infinity",
        "hide",
        lambda scores, visible: scores.masked_fill(~visible, torch.inf).softmax(-1),
        "mask",
        "Hidden scores become +∞, which gives NaN; they must become −∞, whose exponential is 0.",
        "softmax is exp(score) over a sum: exp(−∞) = 0 hides a token, exp(+∞) = ∞ divides infinity by infinity.",
        "scores = scores.masked_fill(future, -torch.inf)",
        with_mask,
    ),
    Mistake(
        "hidden scores set to 0",
        "hide",
        lambda scores, visible: scores.masked_fill(~visible, 0.0).softmax(-1),
        "mask",
        "Hidden scores become 0 before the softmax; exp(0) = 1, so hidden tokens are still seen.",
        "Only −∞ gives a weight of 0.",
        "scores = scores.masked_fill(future, -torch.inf)",
        with_mask,
    ),
    _axis(
        "softmax over the queries",
        -2,
        "The softmax runs over the queries (dim=-2): columns sum to 1, rows do not.",
        lambda given: given.x.shape[1] > 1,
    ),
    _axis("softmax over the heads", 1, "The softmax runs over the heads (dim=1): the heads share one sum.", with_heads),
    _axis(
        "softmax over the batch", 0, "The softmax runs over the texts of the batch (dim=0): texts mix.", _several_texts
    ),
)
