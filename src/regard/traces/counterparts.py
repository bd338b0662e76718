"""Counterparts: which steps of two traces hold the same numbers, and which have no counterpart and no excuse.

A step has a counterpart if some step of the other trace holds the same numbers, its axes in any order. A step without
one is excused where something made from it has one: the mask may come before the scale or after it, the queries may be
scaled instead of the scores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.traces.arrangements import Numbers
from regard.traces.meanings import BEFORE_SOFTMAX, MATRICES, Meaning, meanings
from regard.traces.torch_calls import OUTSIDE, Step, ancestors, descendants, numbered, tensors_in

if TYPE_CHECKING:
    from regard.traces.trace import Trace

_SLICES = 64  # heads or texts that are compared one by one


class ComparedTrace:
    """One of two traces, with what is known of its steps."""

    other: ComparedTrace

    def __init__(self, trace: Trace, rtol: float | None, atol: float | None, is_this: bool = True) -> None:
        self.is_this = is_this  # the one whose diff was called
        self.who = "this" if is_this else "the other"
        self.input = None if trace.input is None else Numbers(trace.input, rtol, atol)
        self.steps = list(trace.steps)
        self.named = trace.has_names
        out = next(tensors_in(trace.out), None)
        self.has_out = out is not None
        self.final = len(self.steps) - 1
        if out is not None:
            same = [i for i, s in enumerate(self.steps) if s.value.shape == out.shape and _equal(s.value, out)]
            if not same:  # what a module returns is none of its steps; it was made from the last one
                self.steps.append(Step("output", "", out, (self.final,)))
            self.final = max(same, default=len(self.steps) - 1)
        self.is_meta = any(step.value.is_meta for step in self.steps)
        self.numbers = [Numbers(s.value, rtol, atol) for s in self.steps]
        self.meanings: list[Meaning] = meanings(self.steps, self.named)
        self.keys = numbered([one.name for one in self.meanings])  # "scores", "scores 2", …
        self.places = {key: i for i, key in enumerate(self.keys) if self.meanings[i].name}
        self.counterparts: dict[int, list[int]] = {}

    def namesake(self, i: int) -> int | None:
        """The other's step of the same meaning."""
        return self.other.places.get(self.keys[i])

    def partner(self, i: int) -> int | None:
        """The other's step to compare with: what went into it is the same, or it has the same meaning."""
        if contains := self.meanings[i].contains:
            both = (self.meanings, self.other.meanings)
            mine, its = ([j for j, one in enumerate(side) if one.contains == contains] for side in both)
            if mine.index(i) < len(its):
                return its[mine.index(i)]
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
        for j, its in enumerate(self.other.meanings):
            taken = self.other.namesake(j) if self.named and self.other.named else None
            names = {self.meanings[i].name, its.name}
            together = names <= {*BEFORE_SOFTMAX, "bias"} or names <= {"weights", "dropout"}
            may_be = together or self.numbers[i].sizes != self.other.numbers[j].sizes
            if j != namesake and not single and (namesake is None or taken is None or may_be):
                yield j

    def _has_all_numbers(self, i: int, j: int) -> bool:
        """The same numbers, in whatever order?"""
        a, b = self.numbers[i], self.other.numbers[j]
        if not a.may_have_the_numbers_of(b):
            return False
        flat, its = a.tensor.flatten().sort().values, b.tensor.flatten().sort().values
        return a.like(flat).agrees(its, b)

    def _hides_like_other(self, i: int) -> bool:
        """The same is hidden as in some step of the other trace; or nothing, unless this is a mask and theirs hides."""
        mine = self.numbers[i].hidden
        others = [numbers.hidden for numbers in self.other.numbers if numbers.hidden is not None]
        if mine is None:
            return not others or "mask" not in self.meanings[i].contains
        return any(torch.equal(mine, its) for its in others)

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


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.is_meta or b.is_meta or a.dtype is not b.dtype or a.device != b.device:
        return a.is_meta and b.is_meta
    return bool(((a == b) | ((a != a) & (b != b))).all())  # NaN is equal to NaN here
