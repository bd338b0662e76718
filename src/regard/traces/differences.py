"""Differences: the first step at which two traces differ, aligned by what the steps are, not by what they are called.

The outputs decide. Where they differ, the first step without a counterpart that nothing excuses is the difference; or a
step that only the other trace has, if that comes before it. The search goes from the trace that says less of itself to
the one that says more, whichever of them was asked, so that both directions name the same fault.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from regard.traces.arrangements import Numbers, arranged
from regard.traces.counterparts import ComparedTrace
from regard.traces.meanings import MATRICES
from regard.traces.operation_text import shape_text
from regard.traces.torch_calls import OUTSIDE, Step, ancestors, descendants

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
    a, b = ComparedTrace(mine, rtol, atol, is_this=True), ComparedTrace(its, rtol, atol, is_this=False)
    if not a.steps or not b.steps:
        return _one_is_empty(a, b)
    if a.is_meta or b.is_meta:
        return _shapes_differ(a, b)
    a.other, b.other = b, a
    a, b = sorted((a, b), key=_detail)  # so that the same step is found in both directions
    out, its_out = a.numbers[a.final], b.numbers[b.final]
    shapes_fit = out.sizes == its_out.sizes or not (a.has_out and b.has_out)  # axes of size 1 do not count
    equal = shapes_fit and a.agrees(a.final, b.final)
    a.counterparts[a.final] = [b.final] if equal else []
    b.counterparts[b.final] = [a.final] if equal else []
    if equal:
        contradiction = next(a.suspects(beside=ancestors(a.steps, a.final)), None)
        return None if contradiction is None else _describe(a, contradiction)
    return _inputs_differ(a if a.is_this else b) or _first(a, b)


def _detail(one: ComparedTrace) -> tuple[bool, int, list[tuple[str, str]]]:
    """How much a trace says of itself: code that names all its steps is what other code is compared with."""
    return one.named, len(one.steps), [(step.name, step.operation) for step in one.steps]


def _inputs_differ(this: ComparedTrace) -> Difference | None:
    """The inputs of the two traces, where they are known and not the same."""
    mine, its = this.input, this.other.input
    if mine is None or its is None or mine.find(its):
        return None
    how = _shapes(mine, its) if mine.shape != its.shape else _furthest(mine, its.tensor, its)
    return Difference("x", f"the inputs differ, {how}; give both the same x", "x")


def _shapes(mine: Numbers | Step, its: Numbers | Step) -> str:
    return f"shape {shape_text(mine.shape)} against {shape_text(its.shape)}"


def _furthest(mine: Numbers, arranged: Tensor, its: Numbers) -> str:
    """The two numbers where they are furthest apart."""
    where = mine.gap(arranged, its)
    flat = tuple(place for place, size in zip(where, mine.shape, strict=True) if size != 1)
    at = f" at {list(where)}" if where else ""
    return f"{mine.tensor[flat].item():.6g} against {arranged[flat].item():.6g}{at}"


def _first(a: ComparedTrace, b: ComparedTrace) -> Difference:
    """The first difference of two traces whose outputs differ; b says more of itself."""
    if [step.name for step in a.steps] == [step.name for step in b.steps]:
        unequal = [i for i in range(len(a.steps)) if i == a.final or not a.agrees(i, i)]
        is_same_code = _detail(a) == _detail(b)
        suspects = {*a.suspects(), *b.suspects(), a.final}
        return _describe(a, next(i for i in unequal if is_same_code or i in suspects))
    s, its = next(a.suspects(), a.final), list(b.suspects()) or [b.final]
    if s == a.final and (reached := a.find_counterpart(s)):
        return _ends_early(a, b, its, reached)
    return _out_of_place(a, s, b, its) or _describe(a, s, its[0] if b.namesake(its[0]) is None else None)


def _ends_early(a: ComparedTrace, b: ComparedTrace, suspects: list[int], reached: list[int]) -> Difference:
    """The output of a is a step of b that is not its output: what comes after it is missing."""
    if b.final in reached:
        return _other_shape(a, a.final, b.final)
    after = {i for j in reached for i in descendants(b.steps, j)}
    ends = f"; {a.who} one ends with {a.steps[a.final].name}"
    return _missing(b, next((u for u in suspects if u in after), b.final), ends)


def _out_of_place(a: ComparedTrace, s: int, b: ComparedTrace, suspects: list[int]) -> Difference | None:
    """A step of b that comes before step s, and is missing in a or comes after it there."""
    namesake = a.namesake(s)
    before = set() if namesake is None else ancestors(b.steps, namesake)
    if a.named:  # code that names its steps may leave some out; only what lies between two that it names is missing
        before &= _after_inputs(a, s, b)
    u = next((u for u in suspects if u in before), None)
    if u is None:
        return None
    misplaced = b.namesake(u)
    if misplaced is None and b.meanings[u].name not in a.meanings[s].own:
        return _missing(b, u, f"; it comes before {a.steps[s].name}" if a.is_this else "")
    if misplaced is not None and misplaced in descendants(a.steps, s):
        here, there = ("after", "before") if a.is_this else ("before", "after")
        reason = f"comes {here} {a.steps[s].name} here, and {there} it in the other trace"
        return Difference((a.steps[misplaced] if a.is_this else b.steps[u]).name, reason, a.meanings[misplaced].name)
    return None


def _after_inputs(a: ComparedTrace, s: int, b: ComparedTrace) -> set[int]:
    """The steps of b that were made from what step s of a was made from."""
    inputs = [(i, j) for i in a.steps[s].inputs if i != OUTSIDE for j in a.counterpart(i)]
    after = {k for _, j in inputs for k in descendants(b.steps, j)}
    for i, j in inputs:
        if a.numbers[i].hidden is None and b.numbers[j].hidden is not None:  # alike, but for the mask
            after |= {k for k in ancestors(b.steps, j) | {j} if b.meanings[k].name == "mask"}
    return after


def _missing(b: ComparedTrace, u: int, where: str = "") -> Difference:
    made = f" ({b.steps[u].operation})" if b.steps[u].operation else ""
    return Difference(b.steps[u].name, f"only {b.who} trace has it{made}{where}", b.meanings[u].name)


def _other_shape(a: ComparedTrace, i: int, j: int, meaning: str = "") -> Difference:
    if not a.is_this:
        return _other_shape(a.other, j, i, meaning or a.meanings[i].name)
    return Difference(a.steps[i].name, _shapes(a.steps[i], a.other.steps[j]), meaning or a.meanings[i].name)


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
        if meaning:
            return _missing(a, i, hint)
        made = f" ({step.operation})" if step.operation else ""
        return Difference(step.name, f"no step of {a.other.who} trace holds these numbers{made}{hint}")
    if _arrange(a, i, j) is None:
        return _other_shape(a, i, j, meaning)
    hint = _other_inputs(a, i, j) + _other_options(a, i) + hint
    named = step, a.other.steps[j if (namesake := a.namesake(i)) is None else namesake]
    if not a.is_this:
        a, i, j, named = a.other, j, i, named[::-1]
    arranged = _arrange(a, i, j)
    assert arranged is not None  # it was, the other way round
    mine, its = named[0].operation, named[1].operation
    made = f" ({mine} against {its})" if mine != its else ""
    return Difference(named[0].name, f"{_furthest(a.numbers[i], arranged, a.other.numbers[j])}{made}{hint}", meaning)


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
    maker = "" if a.is_this else "the other is "
    return f"; {maker}made from {b.steps[used[unused[0]][0]].name}, not from {b.steps[lacking[0]].name}"


def _other_options(a: ComparedTrace, i: int) -> str:
    """The options of a call of scaled_dot_product_attention that the other trace contradicts."""
    operation = a.steps[i].operation
    if not operation.startswith("scaled_dot_product_attention("):
        return ""
    D = a.steps[i].shape[-1]
    caller, other = "" if a.is_this else "the other is ", a.other.who
    places = a.other.places
    mask, scaled = (a.other.steps[places[n]].operation if n in places else "" for n in ("mask", "scaled"))
    if mask and "is_causal=True" not in operation and "attn_mask=" not in operation:
        return f"; {caller}called without is_causal or attn_mask, but {other} trace has a mask ({mask})"
    scale = re.search(r"scale=([\d.e-]+)", operation.replace("−", "-"))
    if not scale or not scaled or (math.isclose(float(scale[1]), D**-0.5, rel_tol=1e-3) and f"√{D}" in scaled):
        return ""
    return f"; {caller}called with {scale[0]}, but {other} trace has {scaled}"


def _arrange(a: ComparedTrace, i: int, j: int) -> Tensor | None:
    """The other's step j arranged like step i; None where no arrangement has its sizes."""
    return next(arranged(a.other.numbers[j].tensor, a.numbers[i].sizes, ordered=True), None)


def _one_is_empty(a: ComparedTrace, b: ComparedTrace) -> Difference | None:
    if a.steps:
        return Difference(a.steps[0].name, "only this trace has it; the other has no steps")
    return Difference(b.steps[0].name, "only the other trace has it; this one has no steps") if b.steps else None


def _shapes_differ(a: ComparedTrace, b: ComparedTrace) -> Difference | None:
    """The first step of the same name with another shape; tensors on the meta device have no values."""
    named = {step.name: step for step in b.steps}
    other = (s for s in a.steps if s.name in named and s.shape != named[s.name].shape)
    return next((Difference(step.name, _shapes(step, named[step.name])) for step in other), None)
