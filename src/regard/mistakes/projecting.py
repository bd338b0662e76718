"""Mistakes in making queries, keys and values."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product

import torch
from torch import Tensor

from regard.mistakes.formula import Given
from regard.mistakes.mistake import Mistake, with_heads

NAMES = ("W_query", "W_key", "W_value")
WORDS = {"W_query": "queries", "W_key": "keys", "W_value": "values"}


def with_weights(given: Given) -> bool:
    """The layer has projections."""
    return bool(given.projections)


def _from(sources: tuple[str, ...]) -> Callable[[Given], tuple[Tensor, Tensor, Tensor]]:
    def project(given: Given) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (given.projections[name](given.x) for name in sources)
        return q, k, v

    return project


def _transposed(given: Given) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (
        given.x @ weight + (0 if bias is None else bias) for weight, bias in (given.projections[name] for name in NAMES)
    )
    return q, k, v


def _split_first(given: Given) -> tuple[Tensor, Tensor, Tensor]:
    parts = given.x.unflatten(-1, (given.num_heads, -1))  # (B, T, H, d_in / H)
    q, k, v = (given.projections[name](parts).flatten(2) for name in NAMES)
    return q, k, v


def _is_split_first(given: Given) -> bool:
    return with_heads(given) and with_weights(given) and _columns(given) * given.num_heads == given.x.shape[-1]


def _columns(given: Given) -> int:
    return given.projections["W_query"].weight.shape[1]


def _is_square(given: Given) -> bool:
    return with_weights(given) and all(len(set(given.projections[name].weight.shape)) == 1 for name in NAMES)


def _swapped(sources: tuple[str, ...]) -> Mistake:
    changed = [f"the {WORDS[name]} are made with {source}" for name, source in zip(NAMES, sources) if name != source]
    kind = "swapped" if len(set(sources)) == 3 else "one projection used twice"
    made = " and ".join(changed)
    return Mistake(
        name=f"q, k, v swapped: {made}" if kind == "swapped" else f"{kind}: {made}",
        step="project",
        act=_from(sources),
        shows=next(WORDS[name] for name, source in zip(NAMES, sources) if name != source),
        says=f"{made[0].upper()}{made[1:]}.",
        why="A query asks, a key is what it is compared with, and a value is what is handed over: each has its own weights.",
        fix="queries, keys, values = self.W_query(x), self.W_key(x), self.W_value(x)",
        applies=with_weights,
        rare=len(changed) > 2 or kind != "swapped",
    )


MISTAKES = (
    Mistake(
        "embedding split before projection",
        "project",
        _split_first,
        "queries",
        "x is cut into {num_heads} pieces and each head projects its own piece of {d_in} numbers; every head should project all of x.",
        "A head that gets only a piece of each vector cannot look for anything in the rest of it.",
        "queries = self.W_query(x).view(B, T, num_heads, head_dim)  # project first, then split",
        applies=_is_split_first,
    ),
    Mistake(
        "transposed weights",
        "project",
        _transposed,
        "queries",
        "x is multiplied by the weight as nn.Linear stores it, (out, in); nn.Linear itself computes x @ weight.T.",
        "The layer still runs where d_in equals d_out, but weights from elsewhere give other numbers.",
        "queries = self.W_query(x)  # or x @ self.W_query.weight.T",
        applies=_is_square,
    ),
    *(_swapped(sources) for sources in permutations(NAMES) if sources != NAMES),
    *(_swapped(sources) for sources in product(NAMES, repeat=3) if len(set(sources)) < 3),
)
