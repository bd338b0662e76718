"""Wrong attention from right queries, keys and values: the slips that every exercise with the formula shares."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.school.exercises.exercise import Wrong

Weigh = Callable[[Tensor, int], Tensor]  # raw scores, hidden ones −∞, and head_dim; the weights


def _divided_by(measure: Callable[[int], float]) -> Weigh:
    return lambda s, D: (s / measure(D)).softmax(-1)


MEASURES: dict[str, Callable[[int], float]] = {
    "logarithm": math.log,
    "logarithm to base 2": math.log2,
    "cube root": lambda D: math.pow(D, 1 / 3),
}
ROOT = (
    "A score is a sum of head_dim products. Of independent numbers of mean 0 and variance 1 its variance is head_dim, "
    "as you measured: divided by √head_dim it is 1."
)
SHARES = "Weights are shares: they are positive, and those of a query sum to 1."
KEYS = "Keys are for finding, values are what is handed over."
WEIGHED: dict[str, tuple[str, str, Weigh]] = {
    "no scale": ("The scores are not divided by √head_dim.", ROOT, lambda s, D: s.softmax(-1)),
    "missing root": (
        "The scores are divided by head_dim, which may also be √head_dim twice; divide by √head_dim, once.",
        "Dividing by c divides the variance by c². So c is the root.",
        lambda s, D: (s / D).softmax(-1),
    ),
    "half of head_dim": (
        "The scores are divided by head_dim / 2: head_dim**1/2 is (head_dim**1) / 2; write head_dim**0.5.",
        ROOT,
        lambda s, D: (s / (D / 2)).softmax(-1),
    ),
    "twice head_dim": (
        "The scores are divided by 2 · head_dim: scores / head_dim**1/2 divides by head_dim, then by 2; write "
        "head_dim**0.5.",
        ROOT,
        lambda s, D: (s / D / 2).softmax(-1),
    ),
    "square of head_dim": (
        "The scores are divided by head_dim²; it is its root.",
        ROOT,
        lambda s, D: (s / D**2).softmax(-1),
    ),
    "multiplied": (
        "The scores are multiplied by √head_dim, not divided by it.",
        ROOT,
        lambda s, D: (s * D**0.5).softmax(-1),
    ),
    "scaled after the softmax": (
        "The weights are divided by √head_dim; the scores must be, before the softmax.",
        "Weights that were divided do not add up to 1, and the softmax has been too sharp already.",
        lambda s, D: s.softmax(-1) / D**0.5,
    ),
    "root of the number of keys": (
        "The scores are divided by the root of the number of keys; it is the length of a query.",
        "A score is a sum of head_dim products, however many keys there are.",
        lambda s, D: (s / s.shape[-1] ** 0.5).softmax(-1),
    ),
    "root of the number of queries": (
        "The scores are divided by the root of the number of queries; it is the length of a query.",
        "A score is a sum of head_dim products, however many queries there are.",
        lambda s, D: (s / s.shape[-2] ** 0.5).softmax(-1),
    ),
    "root of the first size": (
        "The scores are divided by the root of the first size of the tensor, shape[0]; head_dim is the last, "
        "shape[-1].",
        ROOT,
        lambda s, D: (s / s.shape[0] ** 0.5).softmax(-1),
    ),
    "softmax over the queries": (
        "The softmax goes over the queries: for each key, the shares of all queries add up to 1.",
        "A query divides its attention among the keys. They are the last axis, dim=-1.",
        lambda s, D: (s / D**0.5).softmax(-2),
    ),
    "softmax over the batch": (
        "The softmax goes over the first axis, the texts of the batch, which have nothing to do with each other.",
        "A query divides its attention among the keys. They are the last axis, dim=-1.",
        lambda s, D: (s / D**0.5).softmax(0),
    ),
    "softmax twice": (
        "The softmax is taken twice: of the weights once more, which makes them nearly alike.",
        SHARES,
        lambda s, D: (s / D**0.5).softmax(-1).softmax(-1),
    ),
    **{
        f"{name} of head_dim": (
            f"The scores are divided by the {name} of head_dim; it is its root.",
            ROOT,
            _divided_by(measure),
        )
        for name, measure in MEASURES.items()
    },
    "scores of the first text": (
        "The scores of the first text are used for every text of the batch.",
        "Each text has queries and keys of its own: q @ k.mT, without an index.",
        lambda s, D: (s / D**0.5)[:1].expand_as(s).softmax(-1),
    ),
    "plain average": (
        "All values count alike: the weights do not depend on the scores.",
        SHARES,
        lambda s, D: torch.ones_like(s) / s.shape[-1],
    ),
    "no softmax": ("The values are mixed by the scaled scores: softmax is missing.", SHARES, lambda s, D: s / D**0.5),
    "divided by the sum of scores": (
        "The scores are divided by their sum; softmax takes exp of each first.",
        SHARES,
        lambda s, D: s / s.sum(-1, keepdim=True),
    ),
    "sigmoid": (
        "The weights are a sigmoid of the scores, each by itself.",
        SHARES,
        lambda s, D: (s / D**0.5).sigmoid(),
    ),
    "largest score only": (
        "Each query takes the value of its best key alone; softmax shares among all.",
        "A hard choice has no gradient: nothing could be learned.",
        lambda s, D: (s == s.amax(-1, keepdim=True)).to(s.dtype),
    ),
    "causal mask": (
        "A causal mask hides later keys; nothing is to be hidden here.",
        "",
        lambda s, D: (s / D**0.5).masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf).softmax(-1),
    ),
}
MASKED: dict[str, tuple[str, str, Callable[[Tensor, Tensor, int], Tensor]]] = {  # of raw scores and what is hidden
    "no mask": ("Nothing is hidden.", "", lambda s, hidden, D: (s / D**0.5).softmax(-1)),
    "hidden scores set to 0": (
        "Hidden scores are 0, and e⁰ = 1 is a share as any other; they must be −∞.",
        "",
        lambda s, hidden, D: (s / D**0.5).masked_fill(hidden, 0.0).softmax(-1),
    ),
    "masked after the softmax": (
        "Hidden weights are 0, but the softmax had shared with them: the rest sums to less than 1.",
        "Hide the scores, before the softmax.",
        lambda s, hidden, D: (s / D**0.5).softmax(-1).masked_fill(hidden, 0.0),
    ),
}
WITH_MASK = tuple(MASKED)


def attention_slips(
    project: Callable[..., tuple[Tensor, ...]],
    finish: Callable[..., Any] = lambda context, *arguments: context,
    leave_out: tuple[str, ...] = (),
) -> list[Wrong]:
    """The slips of a function as wrong answers.

    project: of the function's arguments, q, k and v, and where something is hidden, what may be seen.
    finish: of the context and the arguments, what the function returns.
    leave_out: those that the sizes of the exercise make right, or equal to another.
    """

    def act(name: str, *arguments: Any) -> Any:
        q, k, v, *visible = project(*arguments)
        raw, D = q @ k.mT, q.shape[-1]
        hidden = ~visible[0] if visible else torch.zeros_like(raw, dtype=torch.bool)
        scores = raw.masked_fill(hidden, -torch.inf)
        if name == "queries added":
            return finish((scores / D**0.5).softmax(-1) @ v + q, *arguments)
        if name == "keys mixed":
            return finish((scores / D**0.5).softmax(-1) @ k, *arguments)
        weights = MASKED[name][2](raw, hidden, D) if name in MASKED else WEIGHED[name][2](scores, D)
        return finish(weights @ v, *arguments)

    texts = {**WEIGHED, **MASKED, "keys mixed": ("The keys are mixed; the values must be.", KEYS, None)}
    texts["queries added"] = ("The queries are added to the mixed values, which stand alone.", KEYS, None)
    return [Wrong(n, says, partial(act, n), why) for n, (says, why, _) in texts.items() if n not in leave_out]
