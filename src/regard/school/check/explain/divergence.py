"""Divergence: the first step of a layer that is not the formula's, where no known mistake explains its output.

Among the torch calls that led to the output, a call is right if it holds a step of the formula, or leads to one that
does. The first call that is neither is where the layer goes its own way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.mistakes.formula import Case
from regard.school.check.explain.mistake_lines import CLOSE, holds, steps_of
from regard.school.check.learner_code.protocol import Observation, Recorded
from regard.traces.arrangements import Numbers

_ORDER = ("queries", "keys", "values", "scores", "scaled", "masked", "weights", "context", "concat", "out")
_SHAPES = (
    *("view", "reshape", "flatten", "transpose", "permute", "cat", "stack", "unflatten", "contiguous", "concat", "mT"),
    *("split", "chunk", "swapaxes", "movedim", "unbind", "getitem", "T", "squeeze", "unsqueeze", "repeat", "expand"),
)
_PROJECTED = ("queries", "keys", "values")
# What comes next, where a call only changes a shape.
_AFTER_RESHAPE = {
    **dict.fromkeys(_PROJECTED, "split"),
    "scores": "scaled",
    "weights": "context",
    "context": "concat",
    "concat": "out",
}
_PRODUCTS = ("matmul", "bmm", "einsum", "baddbmm", "linear", "scaled_dot_product_attention", "mm", "rmatmul")


@dataclass(frozen=True)
class Divergence:
    """The first step that is not the formula's, its line, and the last step that is right."""

    step: str
    line: int
    before: str

    @property
    def is_changed(self) -> bool:
        """Is the step right at first?"""
        order = [*_ORDER[:3], "split", *_ORDER[3:]]
        known = self.before in order and self.step in order
        return known and order.index(self.step) <= order.index(self.before)


def latest_divergence(cases: Sequence[Case], seen: Observation) -> Divergence:
    """The same where a layer may be one of several: as the one that it follows longest."""
    places = [first_divergence(case, seen) for case in cases]
    return max(places, key=lambda one: _ORDER.index(one.before) if one.before else -1)


def first_divergence(case: Case, seen: Observation) -> Divergence:
    """Where a layer begins to compute something else than the formula."""
    right = steps_of(case, ())
    if not right:
        return Divergence("queries", 0, "")
    right["masked"] = right["scaled"].masked_fill(~right["mask"], -torch.inf)
    right["scores masked"] = right["scores"].masked_fill(~right["mask"], -torch.inf)
    right["exponentials"] = right["masked"].exp()  # of a softmax in pieces
    names = [n for n in _ORDER if n in right and (case.projections or n not in _PROJECTED)]
    calls = seen.recorded
    held = {i: _held(call.value, right, names) for i, call in enumerate(calls) if i >= seen.built}
    before = next((n for n in reversed(names) if any(n in one for one in held.values())), "")
    excused = _excused(calls, held)
    steps = [right[n] for n in names]  # all of it, one text, or one head
    sizes = {n for t in steps for n in (t.numel(), t[0].numel(), t.numel() // case.num_heads)}
    sizes.add(sum(right[n].numel() for n in _PROJECTED))  # one projection for all three
    for i in sorted(_ancestors(calls, len(calls) - 1)):
        call = calls[i]
        is_suspect = i >= seen.built and not held[i] and i not in excused and call.line > 0
        if is_suspect and call.value.is_floating_point() and call.value.numel() in sizes:
            return Divergence(_step(calls, i, held, right), call.line, before)
    following = names[min(names.index(before) + 1, len(names) - 1)] if before else names[0]
    return Divergence(following, calls[-1].line if calls else 0, before)


def _excused(calls: Sequence[Recorded], held: Mapping[int, set[str]]) -> set[int]:
    """The calls that lead to one that holds a step of the formula."""
    excused = set[int]()
    for i in sorted(held, reverse=True):
        if held[i] or i in excused:
            excused |= set(calls[i].inputs)
    return excused


def _held(value: Tensor, right: dict[str, Tensor], names: Sequence[str]) -> set[str]:
    """The steps of which a value is an arrangement or a part."""
    if not value.is_floating_point() or value.numel() < 2:
        return set()
    mine = Numbers(value, **CLOSE)
    result = {name for name in names if holds(mine, right[name])}
    if holds(mine, right["exponentials"]):
        result.add("masked")
    return result | ({"scores"} if holds(mine, right["scores masked"]) else set())


def _ancestors(calls: Sequence[Recorded], last: int) -> set[int]:
    found, waiting = set[int](), [last] if calls else []
    while waiting:
        i = waiting.pop()
        if i not in found:
            found.add(i)
            waiting += calls[i].inputs
    return found


def _step(calls: Sequence[Recorded], i: int, held: Mapping[int, set[str]], right: dict[str, Tensor]) -> str:
    """What a call should have made, from what it was made of."""
    call = calls[i]
    made_of = {name for j in call.inputs for name in held.get(j, ())}
    if not made_of:
        made_of = {name for j in _ancestors(calls, i) - {i} for name in held.get(j, ())}
    latest = next((n for n in reversed(_ORDER) if n in made_of), "")
    if not latest:
        return "queries" if "queries" in right else "scores"
    if call.name in _PRODUCTS and latest in _PROJECTED:
        return "scores" if call.name != "scaled_dot_product_attention" else "context"
    if call.name in _PRODUCTS:
        return "context" if latest in ("weights", "masked", "scaled") else "out"
    if call.name in _SHAPES:
        return _AFTER_RESHAPE.get(latest, latest)
    if latest not in ("scores", "scaled", "masked"):
        return latest
    if not any("softmax" in one.name and i in _ancestors(calls, j) for j, one in enumerate(calls) if j > i):
        return "weights"
    return "mask" if _is_masked(call.value, right) else "scaled"


def _is_masked(value: Tensor, right: dict[str, Tensor]) -> bool:
    """Are these the right scores in every place that may be seen, as far as it is not hidden?"""
    mine = Numbers(value, **CLOSE)
    for step in ("scaled", "scores"):
        for one in (right[step], *right[step].unbind(1)):
            if one.numel() != value.numel() or one.shape[-2:] != value.shape[-2:]:
                continue
            visible = right["mask"].expand(one.shape) & value.reshape(one.shape).isfinite()
            if torch.allclose(value.reshape(one.shape)[visible], one[visible], rtol=1e-5, atol=1e-6):
                return True
        if mine.hidden is not None and holds(mine, right[step], hidden=False):
            return True
    return False
