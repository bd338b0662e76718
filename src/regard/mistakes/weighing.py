"""Mistakes in turning scores into weights, and in mixing values by them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import Case, keep, normalise, scale
from regard.mistakes.mistake import Mistake, with_heads, with_mask

_SHARES = "The weights of one query are shares of its attention: they sum to 1 over the keys, the last axis."
_FIX = "weights = torch.softmax(scores, dim=-1)"
_NO_SOFTMAX = (
    r"(?i)(no|without|instead of|removes?|drops?) (the |a )?softmax|softmax[- ]?free|linear[ _]?attention|retention"
)
_SCALE_WHY = (
    "The scale keeps the scores small, so that the softmax does not pick one key. Divided afterwards, the weights of a "
    "row no longer sum to 1."
)


def _weights(
    name: str,
    act: Callable[..., Tensor],
    says: str,
    applies: Callable[[Case], bool] = lambda case: True,
    also: Mapping[str, Callable[..., Any]] | None = None,
    why: str = _SHARES,
    **options: Any,
) -> Mistake:
    return Mistake(name, "normalise", act, "weights", says, why, _FIX, applies, also=also or {}, **options)


def times_visible(scores: Tensor, visible: Tensor, case: Case) -> Tensor:
    """Scores that are 0 where they are hidden."""
    return scores * visible


def _over_the_sum(t: Tensor) -> Tensor:
    return t / t.sum(-1, keepdim=True)


def _without_maximum(act: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Case], Tensor]:
    return lambda scores, case: act(scores.exp())


def _with_maximum(act: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Case], Tensor]:
    return lambda scores, case: act((scores - scores.amax(-1, keepdim=True)).exp())


def _no_softmax(name: str, act: Callable[[Tensor], Tensor], says: str) -> tuple[Mistake, ...]:
    """Hidden scores may be written as −∞, or multiplied by 0, which fits better here."""
    options: dict[str, Any] = {"announced": _NO_SOFTMAX, "family": "no softmax", "rare": name != "no softmax"}
    return tuple(
        _weights(name, lambda scores, case: act(scores), says, applies, also, **options)
        for applies, also in ((lambda case: True, {}), (with_mask, {"hide": times_visible}))
    )


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "relu": torch.relu, "tanh": torch.tanh}

MISTAKES = (
    *_no_softmax(
        "no softmax", lambda scores: scores, "The scores are used as weights; they must go through the softmax first."
    ),
    *_no_softmax(
        "no softmax: divided by the sum",
        _over_the_sum,
        "The scores are divided by their sum; the softmax takes their exponentials first.",
    ),
    _weights(
        "softmax twice",
        lambda scores, case: normalise(normalise(scores, case), case),
        "The softmax of the softmax is taken: all weights are nearly alike, and hidden tokens get some, too.",
        why="Weights are between 0 and 1, so their exponentials are between 1 and 2.72: the second "
        "softmax is nearly flat.",
        written=r"softmax",
    ),
    Mistake(
        "softmax twice",
        "scale",
        lambda scores, case: scale(scores, case).softmax(-1),
        "scaled",
        "The softmax is taken before the mask and again after it: all weights are nearly alike.",
        "Weights are between 0 and 1, so their exponentials are between 1 and 2.72: the second softmax is nearly flat.",
        "weights = torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)",
        applies=with_mask,
        written=r"softmax",
    ),
    _weights(
        "log-softmax for softmax",
        lambda scores, case: scores.log_softmax(-1),
        "The values are mixed by the logarithms of the weights, which are negative.",
        why="log_softmax is for losses: its exponentials sum to 1, not its numbers.",
        written=r"(?i)log_?softmax|\.log\(",
    ),
    *(
        _weights(
            f"{name} in place of the softmax",
            lambda scores, case, act=act: act(scores),
            f"The weights are the {name} of the scores; they must be the softmax.",
            written=rf"(?i){name}" + ("|clamp|maximum" if name == "relu" else ""),
            announced=rf"{_NO_SOFTMAX}|{name}[ _]?att|squared",
        )
        for name, act in _ACTIVATIONS.items()
    ),
    *(
        _weights(
            "no normalisation",
            exponentials(keep),
            "The exponentials of the scores are not divided by their sum.",
            written=r"exp",
            announced=_NO_SOFTMAX,
        )
        for exponentials in (_without_maximum, _with_maximum)
    ),
    *(
        _weights(
            "keepdim missing",
            exponentials(lambda e: e / e.sum(-1).unsqueeze(-2)),
            "The sum over the keys has no axis left for them: the weight of a key is divided by the sum "
            "of another row.",
            lambda case: case.num_heads == 1 and len(case.x) == 1,
            written=r"sum\(",
            rare=True,
        )
        for exponentials in (_without_maximum, _with_maximum)
    ),
    *(
        _weights(name, partial(normalise, dim=dim), says, applies)
        for name, dim, says, applies in (
            (
                "softmax over the queries",
                -2,
                "The softmax runs over the queries (dim=-2): columns sum to 1, rows do not.",
                lambda case: case.x.shape[1] > 1,
            ),
            (
                "softmax over the heads",
                1,
                "The softmax runs over the heads (dim=1): the heads share one sum.",
                with_heads,
            ),
            (
                "softmax over the batch",
                0,
                "The softmax runs over the texts of the batch (dim=0): texts mix.",
                lambda case: len(case.x) > 1,
            ),
        )
    ),
    *(
        _weights(
            "softmax over all numbers",
            lambda scores, case, axis=axis: scores.flatten(axis).softmax(-1).view_as(scores),
            f"All scores of {of} share one sum; each query has its own.",
            applies,
            rare=True,
        )
        for axis, of, applies in (
            (-2, "a head", lambda case: case.x.shape[1] > 1),
            (1, "a text", with_heads),
            (0, "the batch", lambda case: len(case.x) > 1),
        )
    ),
    Mistake(
        "scaled after the softmax",
        "weigh",
        lambda weights, visible, case: weights / case.head_dim**0.5,
        "weights",
        "The weights are divided by √head_dim, not the scores: each row sums to 1/√{head_dim} instead of 1.",
        _SCALE_WHY,
        "weights = torch.softmax(scores / head_dim**0.5, dim=-1)",
        lambda case: case.scaled,
        also={"scale": keep},
    ),
    Mistake(
        "mask after softmax without renormalising",
        "hide",
        keep,
        "weights",
        "Weights of hidden tokens are set to 0 after the softmax, so rows no longer sum to 1.",
        "The softmax has already given a share to the hidden tokens; what is left is too small.",
        "weights = torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)",
        with_mask,
        hides=True,
        also={"weigh": lambda weights, visible, case: weights * visible},
    ),
    Mistake(
        "weights transposed: summed over the queries",
        "attend",
        lambda weights, values, case: weights.mT @ values,
        "context",
        "The values are summed over the axis of the queries, and a key gets the result; they are summed over the keys.",
        "Row i of the weights says what query i takes from each key: the product must run over the keys.",
        'context = weights @ values  # or einsum("bhts,bhsd->bhtd")',
        lambda case: case.x.shape[1] > 1 and case.scaled,  # of x alone it is the softmax over the queries
        written=r"einsum|\.T\b|transpose|permute|swapaxes|\.mT|\.t\(",
    ),
)
