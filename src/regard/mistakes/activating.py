"""Mistakes in which a step goes through an activation or a norm that the formula does not have."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.mistakes.formula import compare_all, scale
from regard.mistakes.mistake import Mistake

Change = Callable[[Tensor], Tensor]

_WHY = {
    "activation inside": "Queries, keys and values are linear functions of x, scores are their products, "
    "and the context "
    "is a sum of values: a non-linear function in between takes away signs or sizes that attention needs.",
    "norm inside": "The size of a score says how sure the head is; a norm that is not in the formula takes that away.",
}
_MEANT = r"(?i)linear[ _]?att|feature map|kernel|soft[- _]?cap|gated|QK[- _]?norm|cosine|performer|elu"


def _standard(t: Tensor, unbiased: bool) -> Tensor:
    centred = t - t.mean(-1, keepdim=True)  # not t.std, which warns of a single number
    return centred / (centred.square().sum(-1, keepdim=True) / (t.shape[-1] - unbiased)).sqrt()


# What it is called, the functions that people write for it, and a pattern of the code.
_CHANGES: tuple[tuple[str, str, tuple[Change, ...], str], ...] = (
    ("activation inside", "relu", (torch.relu,), r"(?i)relu|clamp|maximum"),
    ("activation inside", "gelu", (F.gelu, lambda t: F.gelu(t, approximate="tanh")), r"(?i)gelu"),
    ("activation inside", "tanh", (torch.tanh,), r"(?i)tanh"),
    ("activation inside", "sigmoid", (torch.sigmoid,), r"(?i)sigmoid"),
    ("activation inside", "silu", (F.silu,), r"(?i)silu|swish"),
    ("activation inside", "leaky relu", (F.leaky_relu, lambda t: F.leaky_relu(t, 0.2)), r"(?i)leaky"),
    ("activation inside", "abs", (torch.abs,), r"abs\("),
    (
        "norm inside",
        "a layer norm",
        (lambda t: F.layer_norm(t, t.shape[-1:]), lambda t: _standard(t, True)),
        r"(?i)norm|std",
    ),
    ("norm inside", "a norm to unit length", (lambda t: F.normalize(t, dim=-1),), r"(?i)norm"),
)


def _on(*places: int) -> Callable[[Change], Callable[..., Any]]:
    """A change of some of queries, keys and values."""
    return lambda change: lambda made, case: tuple(change(t) if i in places else t for i, t in enumerate(made))


# Where it stands: the step of the formula, what it shows, how the change becomes an act, and the kinds that it may be.
_BOTH = ("activation inside", "norm inside")
_PLACES: tuple[tuple[str, str, str, Callable[[Change], Callable[..., Any]], tuple[str, ...]], ...] = (
    ("adapt", "queries", "queries, keys and values", _on(0, 1, 2), _BOTH),
    ("adapt", "queries", "queries and keys", _on(0, 1), _BOTH[:1]),
    ("adapt", "queries", "queries", _on(0), _BOTH[:1]),
    ("adapt", "keys", "keys", _on(1), _BOTH[:1]),
    ("adapt", "values", "values", _on(2), _BOTH),
    ("compare", "scores", "scores", lambda change: lambda q, k, case: change(compare_all(q, k, case)), _BOTH),
    ("scale", "scaled", "scaled scores", lambda change: lambda scores, case: change(scale(scores, case)), _BOTH),
    ("attend", "context", "context", lambda change: lambda weights, values, case: change(weights @ values), _BOTH),
)


def _inside(kind: str, named: str, change: Change, written: str, place: tuple[Any, ...]) -> Mistake:
    step, shows, words, act, _ = place
    return Mistake(
        f"{kind}: {named} of the {words}",
        step,
        act(change),
        shows,
        f"The {words} go through {named}, which the formula does not have.",
        _WHY[kind],
        f"leave the {words} as they are",
        lambda case: case.x.shape[1] > 1 and (case.scaled or words != "scores"),
        family=kind,
        written=written,
        announced=_MEANT,
    )


_ALIKE = ("relu", "leaky relu", "abs")  # before or after the scale, which is the same
MISTAKES: tuple[Mistake, ...] = tuple(
    _inside(kind, named, change, written, place)
    for kind, named, changes, written in _CHANGES
    for change in changes
    for place in _PLACES
    if kind in place[4] and not (place[2] == "scores" and named in _ALIKE)
)
