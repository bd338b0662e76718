"""Mistakes in what is hidden, and how."""

import re
from collections.abc import Callable
from typing import Any

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


def _fills(name: str, value: float, says: str, why: str, written: str = "", family: str = "") -> Mistake:
    def fill(scores: Tensor, visible: Tensor, case: Case) -> Tensor:
        finite = min(value, -LARGE)
        if case.filling == "added" and finite:
            return scores + (~visible).to(scores.dtype) * finite
        return scores.masked_fill(~visible, finite if case.filling == "large" else value)

    return Mistake(
        name, "hide", fill, "mask", says, why, _FILL_FIX, with_mask, family=family, hides=True, written=written
    )


def _fill(name: str, act: Callable[..., Tensor], says: str, why: str, written: str, **options: Any) -> Mistake:
    applies = options.pop("applies", with_mask)
    return Mistake(name, "hide", act, "mask", says, why, _FILL_FIX, applies, hides=True, written=written, **options)


def _times_infinity(scores: Tensor, visible: Tensor, case: Case) -> Tensor:
    return scores + (~visible).to(scores.dtype) * -torch.inf


def _on_part(axis: int, number: int) -> Callable[[Tensor, Tensor, Case], Tensor]:
    """Hides in one head, or one text, only."""

    def act(scores: Tensor, visible: Tensor, case: Case) -> Tensor:
        masked = hide(scores, visible, case)
        part = torch.arange(scores.shape[axis]) == number % scores.shape[axis]
        return torch.where(part.view(-1, *(1,) * (-axis - 1)), masked, scores)

    return act


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
    *(
        _fills(
            f"mask value too small: −{-value:g}",
            value,
            f"Hidden scores become {value:g}, from which exp makes {torch.tensor(value).exp():.2g}: hidden "
            f"tokens are still "
            "seen.",
            "Only −∞, or a number that no score reaches, gives a weight of 0.",
            rf"(masked_fill_?\(.*,|where\(.*,|\]\s*=|\*)\s*\(?-\s*{re.escape(written)}(\.0*)?\b(?!e)",
            "mask value too small",
        )
        for value, written in ((-1.0, "1"), (-2.0, "2"), (-5.0, "5"), (-10.0, "10"))
    ),
    *(
        _fill(
            "0/1 mask added",
            lambda scores, visible, case, is_seen=is_seen: scores + (visible == is_seen).to(scores.dtype),
            f"The mask is added as it is, 1 where a token is {word} and 0 elsewhere: every token is still seen.",
            "A mask of 0 and 1 must be turned into 0 and −∞ before it is added.",
            r"\+|mask",
        )
        for is_seen, word in ((True, "visible"), (False, "hidden"))
    ),
    _fill(
        "0 · −∞ in the mask",
        _times_infinity,
        "The mask is multiplied by −∞ and added: where it is 0, that is 0 · −∞ = NaN.",
        "0 times infinity is not a number. masked_fill writes −∞ where it belongs, and touches nothing else.",
        r"inf",
    ),
    *(
        _fill(
            f"only some {things} masked",
            _on_part(axis, number),
            f"Only the {'first' if not number else 'last'} {thing} hides anything.",
            f"Every {thing} must hide the same tokens: one that sees them hands them on.",
            r"\[[^]\n]*\d|==\s*0|range|if ",
            applies=applies,
            rare=axis == -4,
        )
        for things, thing, axis, number, applies in (
            ("heads", "head", -3, 0, lambda case: with_mask(case) and with_heads(case)),
            ("heads", "head", -3, -1, lambda case: with_mask(case) and with_heads(case)),
            ("texts", "text of the batch", -4, 0, lambda case: with_mask(case) and len(case.x) > 1),
        )
    ),
)
