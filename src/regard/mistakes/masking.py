"""Mistakes in hiding the future, and in the softmax."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from regard.mistakes.formula import LARGE, Case, hide
from regard.mistakes.mistake import Mistake, with_heads, with_mask

_MASK_FIX = "scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf)"
_FILL_FIX = "scores = scores.masked_fill(future, -torch.inf)"


def _seen(name: str, change: Callable[[Tensor], Tensor], says: str, why: str) -> Mistake:
    def see(case: Case) -> Tensor:
        return change(torch.ones_like(case.visible()))

    return Mistake(name, "see", see, "mask", says, why, _MASK_FIX, lambda case: case.causal and case.mask is None)


def _axis(name: str, dim: int, says: str, applies: Callable[[Case], bool]) -> Mistake:
    why = "The weights of one query are shares of its attention: they sum to 1 over the keys, the last axis."
    return Mistake(name, "hide", partial(hide, dim=dim), "weights", says, why, "torch.softmax(scores, dim=-1)", applies)


def _fills(name: str, value: float, says: str, why: str) -> Mistake:
    def fill(scores: Tensor, visible: Tensor, case: Case) -> Tensor:
        finite = min(value, -LARGE)
        if case.filling == "added" and finite:
            return (scores + (~visible).to(scores.dtype) * finite).softmax(-1)
        return scores.masked_fill(~visible, finite if case.filling == "large" else value).softmax(-1)

    return Mistake(name, "hide", fill, "mask", says, why, _FILL_FIX, with_mask, hides=True)


MISTAKES = (
    _seen(
        "no causal mask",
        lambda everything: everything,
        "Every token sees the tokens after it; a causal layer hides them.",
        "A model that is trained to write the next token would simply read it.",
    ),
    _seen(
        "mask polarity inverted",
        lambda everything: everything.triu(1),
        "The mask hides the past and the token itself, and shows the future; it should be the other way round.",
        "masked_fill replaces where the mask is True: True must mean the future.",
    ),
    _seen(
        "mask polarity inverted, the diagonal kept",
        lambda everything: everything.triu(),
        "The mask hides the past and shows the future; it should be the other way round.",
        "masked_fill replaces where the mask is True: True must mean the future.",
    ),
    _seen(
        "mask off by one: the token itself hidden",
        lambda everything: everything.tril(-1),
        "A token cannot see itself, and the first sees nothing; the mask must begin one above the diagonal.",
        "The future begins with the next token: triu(diagonal=1), not triu().",
    ),
    _seen(
        "mask off by one: one future token seen",
        lambda everything: everything.tril(1),
        "A token sees the one after it; the mask must begin one above the diagonal.",
        "The one future token that is visible is the very one that a model should predict.",
    ),
    Mistake(
        "mask argument ignored",
        "see",
        lambda case: torch.ones_like(case.visible()),
        "mask",
        "The mask that is passed to forward changes nothing.",
        "Without it, padding and the future are seen.",
        "scores = scores.masked_fill(mask == 0, -torch.inf)",
        lambda case: case.mask is not None,
    ),
    Mistake(
        "mask after softmax without renormalising",
        "hide",
        lambda scores, visible, case: scores.softmax(-1) * visible,
        "weights",
        "Weights of hidden tokens are set to 0 after the softmax, so rows no longer sum to 1.",
        "The softmax has already given a share to the hidden tokens; what is left is too small.",
        "weights = torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)",
        with_mask,
        hides=True,
    ),
    _fills(
        "wrong sign of infinity",
        torch.inf,
        "Hidden scores become +∞, which gives NaN; they must become −∞, whose exponential is 0.",
        "softmax is exp(score) over a sum: exp(−∞) = 0 hides a token, exp(+∞) = ∞ divides infinity by infinity.",
    ),
    _fills(
        "wrong sign of infinity",
        1e9,
        "Hidden scores become +1e9, so that only hidden tokens are seen; they must become −∞, whose exponential is 0.",
        "softmax is exp(score) over a sum: a large score gets all the attention, −∞ gets none.",
    ),
    _fills(
        "hidden scores set to 0",
        0.0,
        "Hidden scores become 0 before the softmax; exp(0) = 1, so hidden tokens are still seen.",
        "Only −∞ gives a weight of 0.",
    ),
    _axis(
        "softmax over the queries",
        -2,
        "The softmax runs over the queries (dim=-2): columns sum to 1, rows do not.",
        lambda case: case.x.shape[1] > 1,
    ),
    _axis("softmax over the heads", 1, "The softmax runs over the heads (dim=1): the heads share one sum.", with_heads),
    _axis(
        "softmax over the batch",
        0,
        "The softmax runs over the texts of the batch (dim=0): texts mix.",
        lambda case: len(case.x) > 1,
    ),
)
