"""Mistakes in making queries, keys and values."""

from itertools import permutations, product

import torch
from torch import Tensor

from regard.mistakes.formula import QKV, Case
from regard.mistakes.mistake import Mistake

WORDS = {"W_query": "queries", "W_key": "keys", "W_value": "values"}
_FIX = "queries, keys, values = self.W_query(x), self.W_key(x), self.W_value(x)"


def with_weights(case: Case) -> bool:
    """The layer has projections that read x."""
    return bool(case.projections) and case.qkv is None and not case.reads_pieces


def _transposed(case: Case) -> tuple[Tensor, ...]:
    projections = (case.projections[name] for name in QKV)
    return tuple(case.x @ weight + (0 if bias is None else bias) for weight, bias in projections)


def _split_first(case: Case) -> tuple[Tensor, ...]:
    """Each head projects its own piece of x: all with the same weights, or each with its own."""
    H, pieces = case.num_heads, case.x.unflatten(-1, (case.num_heads, -1))  # (B, T, H, d_in / H)
    projected = []
    for weight, bias in (case.projections[name] for name in QKV):
        if len(weight) == case.width and case.width != case.head_dim:  # the heads' weights one below the other
            t = torch.einsum("bthi,hdi->bthd", pieces, weight.unflatten(0, (H, -1)))
            t = t if bias is None else t + bias.view(H, -1)
        else:
            t = torch.nn.functional.linear(pieces, weight, bias)
        projected.append(t.flatten(2))
    return tuple(projected)


def _swapped(sources: tuple[str, ...]) -> Mistake:
    changed = [
        f"the {WORDS[name]} are made with {source}" for name, source in zip(QKV, sources, strict=True) if name != source
    ]
    kind = "q, k, v swapped" if len(set(sources)) == 3 else "one projection used twice"
    made = " and ".join(changed)
    return Mistake(
        name=f"{kind}: {made}",
        step="project",
        act=lambda case: tuple(case.projections[name](case.x) for name in sources),
        shows=next(WORDS[name] for name, source in zip(QKV, sources, strict=True) if name != source),
        says=f"{made[0].upper()}{made[1:]}.",
        why="A query asks, a key is what it is compared with, and a value is what is handed over: "
        "each has its own weights.",
        fix=_FIX,
        applies=with_weights,
        rare=len(changed) > 2 or len(set(sources)) < 3,
        family=kind,
    )


MISTAKES = (
    Mistake(
        "embedding split before projection",
        "project",
        _split_first,
        "queries",
        "x is cut into {num_heads} pieces, and each head projects only its own piece; "
        "every head should project all of x.",
        "A head that gets only a piece of each vector cannot look for anything in the rest of it.",
        "queries = self.W_query(x).view(B, T, num_heads, head_dim)  # project first, then split",
        applies=lambda case: case.qkv is None and case.reads_pieces,
    ),
    Mistake(
        "transposed weights",
        "project",
        _transposed,
        "queries",
        "x is multiplied by the weight as nn.Linear stores it, (out, in); nn.Linear itself computes x @ weight.T.",
        "The layer still runs where d_in equals d_out, but weights from elsewhere give other numbers.",
        "queries = self.W_query(x)  # or x @ self.W_query.weight.T",
        applies=lambda case: with_weights(case) and all(len(set(case.projections[n].weight.shape)) == 1 for n in QKV),
    ),
    *(_swapped(sources) for sources in permutations(QKV) if sources != QKV),
    *(_swapped(sources) for sources in product(QKV, repeat=3) if len(set(sources)) < 3),
)
