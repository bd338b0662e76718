"""Differences: the first step at which two traces differ, aligned by what the steps are, not by what they are called.

A step has a counterpart if some step of the other trace holds the same numbers, its axes in any order. A step without
one is no mistake where something made from it has one: the mask may come before the scale or after it, the queries may
be scaled instead of the scores. The outputs decide. Where they differ, the first step without a counterpart that
nothing excuses is the difference; or a step that only the other trace has, if that comes before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.traces.arrangements import Numbers, arranged
from regard.traces.lineage import OUTSIDE, ancestors, descendants
from regard.traces.meanings import BEFORE_SOFTMAX, MATRICES, Meaning, meanings
from regard.traces.operation_text import shape_text

if TYPE_CHECKING:
    from regard.traces.trace import Step, Trace

_SLICES = 64  # heads or texts that are compared one by one


@dataclass(frozen=True)
class Difference:
    """The first step at which two traces differ.

    name: the step, as its own trace calls it. meaning: what it is in attention ("scores"), "" where that is unknown.
    """

    name: str
    reason: str
    meaning: str = ""

    def __str__(self) -> str:
        also = f" ({self.meaning})" if self.meaning not in ("", self.name) else ""
        return f"{self.name}{also}: {self.reason}"


def find_difference(mine: Trace, its: Trace, rtol: float | None, atol: float | None) -> Difference | None:
    """The first step that differs; None where the outputs agree and no step contradicts one of the same name."""
    a, b = _Side(mine, rtol, atol), _Side(its, rtol, atol)
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


@dataclass(frozen=True)
class _Output:
    """What a module returns, where that is not its last step."""

    value: Tensor
    inputs: tuple[int, ...]
    name: str = "output"
    operation: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)


class _Side:
    """One of two traces, with what is known of its steps."""

    other: _Side

    def __init__(self, trace: Trace, rtol: float | None, atol: float | None) -> None:
        self.steps: list[Step | _Output] = list(trace.steps)
        self.named = trace.has_names
        out = _first_tensor(trace.out)
        self.has_out = out is not None
        self.final = len(self.steps) - 1
        if out is not None:
            same = (i for i, s in enumerate(self.steps) if s.value.shape == out.shape and _equal(s.value, out))
            self.final = max(same, default=-1)
            if self.final < 0:
                last = (len(self.steps) - 1,) if self.steps else (OUTSIDE,)
                self.steps.append(_Output(out, last))
                self.final = len(self.steps) - 1
        self.is_meta = any(step.value.is_meta for step in self.steps)
        self.numbers = [Numbers(s.value, rtol, atol) for s in self.steps]
        self.meanings: list[Meaning] = meanings(self.steps, self.named)
        self.counterparts: dict[int, list[int]] = {}

    @cached_property
    def _places(self) -> dict[tuple[str, int], int]:
        """Where the first, second, … step of each meaning is."""
        counts: dict[str, int] = {}
        places = {}
        for i, meaning in enumerate(self.meanings):
            if meaning.name:
                counts[meaning.name] = counts.get(meaning.name, 0) + 1
                places[meaning.name, counts[meaning.name]] = i
        return places

    @cached_property
    def _keys(self) -> dict[int, tuple[str, int]]:
        return {place: key for key, place in self._places.items()}

    def namesake(self, i: int) -> int | None:
        """The other's step of the same meaning."""
        return self.other._places.get(self._keys[i]) if i in self._keys else None

    def partner(self, i: int) -> int | None:
        """The other's step to compare with: what went into it is the same, or it has the same meaning."""
        mine = self.meanings[i]
        if mine.contains:
            number = self._keys[i][1] if i in self._keys else 1
            same = [j for j, its in enumerate(self.other.meanings) if its.contains == mine.contains]
            if len(same) >= number:
                return same[number - 1]
        return self.namesake(i)

    def agrees(self, i: int, j: int, hidden: bool = True) -> bool:
        """Does step i hold the numbers of the other's step j?"""
        return self.numbers[i].find(self.other.numbers[j], self._is_ordered(i, j), hidden)

    def _is_ordered(self, i: int, j: int) -> bool:
        return bool({self.meanings[i].name, self.other.meanings[j].name} & MATRICES)

    def counterpart(self, i: int) -> list[int]:
        """The other's steps that hold the numbers of this one: one, several that hold parts of it, or none."""
        if i not in self.counterparts:
            self.counterparts[i] = self.find_counterpart(i)
        return self.counterparts[i]

    def find_counterpart(self, i: int) -> list[int]:
        """As counterpart; but for the output, any step of the other will do."""
        numbers, visible, rearranged = self.numbers[i], -1, False
        candidates = sorted(self._candidates(i), key=lambda j: len(self.other.numbers[j].sizes) != len(numbers.sizes))
        for j in candidates:
            same_sizes = sorted(self.other.numbers[j].sizes) == sorted(numbers.sizes)
            if rearranged and not same_sizes:
                break  # the same numbers, split or joined in another order: that is a mistake, not a layout
            if self.agrees(i, j):
                return [j]
            if visible < 0 and self.agrees(i, j, hidden=False):
                visible = j
            rearranged = rearranged or (same_sizes and self._has_all_numbers(i, j))
        if visible >= 0 and self._hides_like_other(i):
            return [visible]
        return [] if rearranged else self._find_parts(i, candidates)

    def _candidates(self, i: int) -> Iterator[int]:
        """The other's steps that may be this one: its namesake first, and none that is the namesake of another."""
        namesake = self.namesake(i)
        if namesake is not None:
            yield namesake
        single = self.numbers[i].tensor.numel() < 2
        for j in range(len(self.other.steps)):
            taken = self.other.namesake(j) if self.named and self.other.named else None
            if j != namesake and not single and (namesake is None or taken is None or self._may_stand_for(i, j)):
                yield j

    def _may_stand_for(self, i: int, j: int) -> bool:
        a, b = self.meanings[i].name, self.other.meanings[j].name
        together = ({*BEFORE_SOFTMAX, "bias"}, {"weights", "dropout"})
        return (
            any(a in group and b in group for group in together) or self.numbers[i].sizes != self.other.numbers[j].sizes
        )

    def _has_all_numbers(self, i: int, j: int) -> bool:
        """The same numbers, in whatever order?"""
        a, b = self.numbers[i], self.other.numbers[j]
        if not a.may_have_the_numbers_of(b):
            return False
        flat, its = a.tensor.flatten().sort().values, b.tensor.flatten().sort().values
        return a._like(flat).agrees(its, b)

    def _hides_like_other(self, i: int) -> bool:
        """Nothing is hidden here, or the same as in some step of the other trace."""
        mine = self.numbers[i].hidden
        others = (numbers.hidden for numbers in self.other.numbers)
        return mine is None or any(its is not None and torch.equal(mine, its) for its in others)

    def _find_parts(self, i: int, candidates: list[int]) -> list[int]:
        """The other's step of which this is one head or text; or its steps that are the heads or texts of this one."""
        numbers, ordered = self.numbers[i], self.meanings[i].name in MATRICES
        for j in candidates:
            if numbers.part_of(self.other.numbers[j], ordered or self._is_ordered(i, j)):
                return [j]
        smaller = [j for j, one in enumerate(self.other.numbers) if len(one.sizes) == len(numbers.sizes) - 1 > 1]
        for axis, size in enumerate(numbers.sizes):
            if smaller and size <= _SLICES:
                parts = numbers.slices(axis)
                found = [next((j for j in smaller if p.find(self.other.numbers[j], ordered)), -1) for p in parts]
                if -1 not in found:
                    return found
        return []

    def suspects(self, beside: Collection[int] = ()) -> Iterator[int]:
        """Steps without a counterpart, of which nothing that was made from them has one; in order.

        They lead to the output, or the other trace has a step of the same meaning. beside: without these.
        """
        relevant = ancestors(self.steps, self.final) | {self.final}
        for i in range(len(self.steps)):
            has_namesake = self.namesake(i) is not None
            is_input = self.steps[i].operation == "input"  # which a trace of tensor operations does not have
            if i in beside or (not has_namesake and (i not in relevant or is_input)):
                continue
            if self.counterpart(i) or self.is_mask_or_constant(i):
                continue
            if not any(self.counterpart(j) for j in descendants(self.steps, i)):
                yield i

    def is_mask_or_constant(self, i: int) -> bool:
        """A mask that is being built, or numbers that depend on no input: what uses them is compared instead."""
        if i == self.final or self.namesake(i) is not None:
            return False
        if not self.named and all(OUTSIDE not in self.steps[j].inputs for j in {i, *ancestors(self.steps, i)}):
            return True
        values = self.numbers[i].tensor
        return bool(((values == 0) | (values == 1) | (values < self.numbers[i].lowest) | values.isinf()).all())


def _first(a: _Side, b: _Side) -> Difference:
    """The first difference of two traces whose outputs differ."""
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


def _between(a: _Side, s: int, b: _Side, suspects: list[int]) -> list[int]:
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


def _missing(b: _Side, u: int, where: str) -> Difference:
    made = f" ({b.steps[u].operation})" if b.steps[u].operation else ""
    return Difference(b.steps[u].name, f"only the other trace has it{made}; {where}", b.meanings[u].name)


def _describe(a: _Side, i: int, instead: int | None = None) -> Difference:
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


def _other_inputs(a: _Side, i: int, j: int) -> str:
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


def _arrange(a: _Side, i: int, j: int) -> Tensor | None:
    """The other's step j arranged like step i; None where no arrangement has its sizes."""
    sizes = a.numbers[i].sizes
    if a.numbers[i].tensor.numel() != a.other.numbers[j].tensor.numel():
        return None
    return next(arranged(a.other.numbers[j].tensor, sizes, ordered=True), None)


def _one_is_empty(a: _Side, b: _Side) -> Difference | None:
    if not a.steps and not b.steps:
        return None
    if a.steps:
        return Difference(a.steps[0].name, "only this trace has it; the other has no steps")
    return Difference(b.steps[0].name, "only the other trace has it; this one has no steps")


def _shapes_differ(a: _Side, b: _Side) -> Difference | None:
    """The first step of the same name with another shape; tensors on the meta device have no values."""
    shapes = {step.name: step.shape for step in b.steps}
    for step in a.steps:
        if step.name in shapes and step.shape != shapes[step.name]:
            return Difference(step.name, f"shape {shape_text(step.shape)} against {shape_text(shapes[step.name])}")
    return None


def _first_tensor(out: Any) -> Tensor | None:
    if isinstance(out, Tensor):
        return out
    values = out.values() if isinstance(out, dict) else out if isinstance(out, (tuple, list)) else ()
    return next((tensor for one in values if (tensor := _first_tensor(one)) is not None), None)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.is_meta or bool(torch.equal(a.nan_to_num(), b.detach().nan_to_num()))
