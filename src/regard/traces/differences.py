"""Differences: the first step at which two traces differ, aligned by what the steps are, not by what they are called.

The outputs decide. Where they differ, the first step without a counterpart that nothing excuses is the difference; or a
step that only the other trace has, if that comes before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from regard.traces.arrangements import arranged
from regard.traces.counterparts import ComparedTrace
from regard.traces.lineage import OUTSIDE, ancestors, descendants
from regard.traces.meanings import MATRICES
from regard.traces.operation_text import shape_text

if TYPE_CHECKING:
    from regard.traces.trace import Trace


@dataclass(frozen=True)
class Difference:
    """The first step at which two traces differ.

    name: the step, as its own trace calls it. meaning: what it is in attention ("scores"), "" where that is unknown.
    """

    name: str
    reason: str
    meaning: str = ""

    def __str__(self) -> str:
        known = self.meaning in ("", self.name) or re.fullmatch(rf"{re.escape(self.meaning)} \d+", self.name)
        also = "" if known else f" ({self.meaning})"
        return f"{self.name}{also}: {self.reason}"


def find_difference(mine: Trace, its: Trace, rtol: float | None, atol: float | None) -> Difference | None:
    """The first step that differs; None where the outputs agree and no step contradicts one of the same name."""
    a, b = ComparedTrace(mine, rtol, atol), ComparedTrace(its, rtol, atol)
    if not a.steps or not b.steps:
        return _one_is_empty(a, b)
    if a.is_meta or b.is_meta:
        return _shapes_differ(a, b)
    a.other, b.other = b, a
    if a.numbers[a.final].shape != b.numbers[b.final].shape and a.has_out and b.has_out:
        equal = a.numbers[a.final].sizes == b.numbers[b.final].sizes and a.agrees(a.final, b.final)
    else:
        equal = a.agrees(a.final, b.final)
    a.counterparts[a.final] = [b.final] if equal else []
    b.counterparts[b.final] = [a.final] if equal else []
    if equal:
        contradiction = next(a.suspects(beside=ancestors(a.steps, a.final)), None)
        return None if contradiction is None else _describe(a, contradiction)
    return _first(a, b)


def _first(a: ComparedTrace, b: ComparedTrace) -> Difference:
    """The first difference of two traces whose outputs differ."""
    if [(one.name, one.operation) for one in a.steps] == [(one.name, one.operation) for one in b.steps]:
        return _describe(a, next(i for i in range(len(a.steps)) if i == a.final or not a.agrees(i, i)))
    s, its = next(a.suspects(), a.final), list(b.suspects()) or [b.final]
    if s == a.final and (reached := a.find_counterpart(s)):
        if b.final in reached:
            shapes = f"shape {shape_text(a.steps[s].shape)} against {shape_text(b.steps[b.final].shape)}"
            return Difference(a.steps[s].name, shapes, a.meanings[s].name)
        after = {i for j in reached for i in descendants(b.steps, j)}
        return _missing(b, next((u for u in its if u in after), b.final), f"this one ends with {a.steps[s].name}")
    for u in _between(a, s, b, its):
        misplaced = b.namesake(u)
        if misplaced is None and b.meanings[u].name not in a.meanings[s].own:
            return _missing(b, u, f"it comes before {a.steps[s].name}")
        if misplaced is not None and misplaced in descendants(a.steps, s):
            reason = f"comes after {a.steps[s].name} here, and before it in the other trace"
            return Difference(a.steps[misplaced].name, reason, a.meanings[misplaced].name)
    return _describe(a, s, its[0] if b.namesake(its[0]) is None else None)


def _between(a: ComparedTrace, s: int, b: ComparedTrace, suspects: list[int]) -> list[int]:
    """The other's suspects between what step s was made from and what it should be; the first of them, or none."""
    namesake = a.namesake(s)
    if namesake is None:
        return []
    before = ancestors(b.steps, namesake)
    if a.named:  # code that names its steps may leave some out; only what lies between two that it names is missing
        inputs = [(i, j) for i in a.steps[s].inputs if i != OUTSIDE for j in a.counterpart(i)]
        after = {k for _, j in inputs for k in descendants(b.steps, j)}
        for i, j in inputs:
            if a.numbers[i].hidden is None and b.numbers[j].hidden is not None:  # alike, but for the mask
                after |= {k for k in ancestors(b.steps, j) | {j} if b.meanings[k].name == "mask"}
        before &= after
    return [u for u in suspects if u in before][:1]


def _missing(b: ComparedTrace, u: int, where: str) -> Difference:
    made = f" ({b.steps[u].operation})" if b.steps[u].operation else ""
    return Difference(b.steps[u].name, f"only the other trace has it{made}; {where}", b.meanings[u].name)


def _describe(a: ComparedTrace, i: int, instead: int | None = None) -> Difference:
    """How a step differs from its partner, or that it has none."""
    step, meaning, j = a.steps[i], a.meanings[i].name, a.partner(i)
    if j is None and instead is not None and _arrange(a, i, instead) is not None:
        j = instead
        meaning = meaning or a.other.meanings[j].name
    if j is None and i == a.final:
        j = a.other.final
    hint = "; dropout is on: call .eval() to compare" if meaning == "dropout" or step.name.startswith("dropout") else ""
    if j is None:
        made = f" ({step.operation})" if step.operation else ""
        known = "only this trace has it" if meaning else "no step of the other trace holds these numbers"
        return Difference(step.name, f"{known}{made}{hint}", meaning)
    other = a.other.steps[j]
    its = _arrange(a, i, j)
    if its is None:
        return Difference(step.name, f"shape {shape_text(step.shape)} against {shape_text(other.shape)}", meaning)
    where = a.numbers[i].gap(its, a.other.numbers[j])
    flat = tuple(place for place, size in zip(where, step.shape, strict=True) if size != 1)
    at = f" at {list(where)}" if where else ""
    namesake = a.namesake(i)
    operation = other.operation if namesake is None else a.other.steps[namesake].operation
    made = f" ({step.operation} against {operation})" if step.operation != operation else ""
    made += _other_inputs(a, i, j)
    number = step.value[where].item() if where else step.value.item()
    return Difference(step.name, f"{number:.6g} against {its[flat].item():.6g}{at}{made}{hint}", meaning)


def _other_inputs(a: ComparedTrace, i: int, j: int) -> str:
    """What the step was made from instead, where its inputs are not those of its partner."""
    b = a.other
    if a.meanings[i].name in MATRICES - {"scores"}:
        return ""  # mask and scale may come in any order
    mine = [k for k in a.steps[i].inputs if k != OUTSIDE and not a.is_mask_or_constant(k)]
    used = {k: a.counterpart(k) for k in mine}
    lacking = [k for k in b.steps[j].inputs if k != OUTSIDE and not any(a.agrees(m, k) for m in mine)]
    unused = [k for k in mine if used[k] and not any(a.agrees(k, its) for its in b.steps[j].inputs if its != OUTSIDE)]
    if not all(used.values()) or len(lacking) != 1 or len(unused) != 1:
        return ""
    return f"; made from {b.steps[used[unused[0]][0]].name}, not from {b.steps[lacking[0]].name}"


def _arrange(a: ComparedTrace, i: int, j: int) -> Tensor | None:
    """The other's step j arranged like step i; None where no arrangement has its sizes."""
    sizes = a.numbers[i].sizes
    if a.numbers[i].tensor.numel() != a.other.numbers[j].tensor.numel():
        return None
    return next(arranged(a.other.numbers[j].tensor, sizes, ordered=True), None)


def _one_is_empty(a: ComparedTrace, b: ComparedTrace) -> Difference | None:
    if not a.steps and not b.steps:
        return None
    if a.steps:
        return Difference(a.steps[0].name, "only this trace has it; the other has no steps")
    return Difference(b.steps[0].name, "only the other trace has it; this one has no steps")


def _shapes_differ(a: ComparedTrace, b: ComparedTrace) -> Difference | None:
    """The first step of the same name with another shape; tensors on the meta device have no values."""
    shapes = {step.name: step.shape for step in b.steps}
    for step in a.steps:
        if step.name in shapes and step.shape != shapes[step.name]:
            return Difference(step.name, f"shape {shape_text(step.shape)} against {shape_text(shapes[step.name])}")
    return None
