"""Arrangements: are two tensors the same numbers, apart from the order of their axes?

Layers keep the same tensor as (B, T, H, D), (B, H, T, D), (B·H, T, D), (B, T, H·D) or, for one text, (T, H·D). One is
an arrangement of the other if axes of it, swapped and joined as a whole, give the other. A `view` that cuts through an
axis is not: it puts numbers where they do not belong, which is a frequent mistake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, permutations
from math import prod
from operator import mul

import torch
from torch import Tensor

from regard.support.hidden_scores import HIDES_IN_EXAMPLE, is_hidden

# How far two results of the same formula may be apart, as a share of a number and of their mean size.
_CLOSE = {torch.float64: 1e-9, torch.float32: 3e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}
_SMALLEST = 1e-9  # numbers this close are always equal


class Numbers:
    """The numbers of a tensor, in float64 on the CPU and without axes of size 1."""

    def __init__(self, tensor: Tensor, rtol: float | None = None, atol: float | None = None) -> None:
        self.shape = tuple(tensor.shape)
        self.sizes = tuple(size for size in tensor.shape if size != 1)
        self.close = _CLOSE.get(tensor.dtype, 0.0)
        self.rtol, self.atol = rtol, atol
        self._tensor = tensor

    @cached_property
    def tensor(self) -> Tensor:
        """The numbers."""
        return self._tensor.detach().to("cpu", torch.float64).reshape(self.sizes)

    @cached_property
    def lowest(self) -> float:
        """Numbers up to it are hidden from the softmax: −∞, or a number such as −1e9 among others."""
        return HIDES_IN_EXAMPLE if bool((self.tensor > HIDES_IN_EXAMPLE).any()) else -torch.inf

    @cached_property
    def hidden(self) -> Tensor | None:
        """Which numbers are hidden, (T, S) where all heads and texts hide the same; None where none is."""
        hidden = is_hidden(self.tensor, self.lowest)
        if not hidden.any():
            return None
        matrices = hidden.reshape(-1, *hidden.shape[-2:])
        return matrices[0] if bool((matrices == matrices[:1]).all()) else hidden

    @cached_property
    def _size(self) -> float:
        """The mean size of the numbers that are visible and finite."""
        visible = ~is_hidden(self.tensor, self.lowest) & self.tensor.isfinite()
        return self.tensor[visible].abs().mean().item() if bool(visible.any()) else 0.0

    def find(self, other: Numbers, ordered: bool = False, hidden: bool = True) -> bool:
        """Is this an arrangement of the other?

        ordered: axes of equal size keep their order, because queries × keys transposed is something else.
        hidden: the same numbers must be hidden; else, numbers that one of them hides are not compared.
        """
        if prod(self.shape) != prod(other.shape) or not self.may_have_the_numbers_of(other, hidden):
            return False
        return any(self.agrees(one, other, hidden) for one in arranged(other.tensor, self.sizes, ordered))

    def may_have_the_numbers_of(self, other: Numbers, hidden: bool = True) -> bool:
        """Could they be the same numbers, in any order? A quick test by their mean size."""
        if not hidden and (self.hidden is not None or other.hidden is not None):
            return True
        return bool(abs(self._size - other._size) <= self._distance(other, other._size))

    def agrees(self, arranged: Tensor, other: Numbers, hidden: bool = True) -> bool:
        """Is the other, arranged like this one, the same number for number?"""
        # Most that differ, differ in a sample already.
        few = tuple(slice(None, None, max(size // 3, 1)) for size in self.sizes)
        for a, b in ((self.tensor[few], arranged[few]), (self.tensor, arranged)):
            mine, its = is_hidden(a, self.lowest), is_hidden(b, other.lowest)
            same = (a == b) | (a.isnan() & b.isnan()) | mine | its
            close = ((a - b).abs() <= self._distance(other, b.abs())) & a.isfinite() & b.isfinite()
            if not bool((same | close).all()) or (hidden and not torch.equal(mine, its)):
                return False
        return hidden or not bool((mine | its).all())  # where everything is hidden from one, nothing was compared

    def gap(self, arranged: Tensor, other: Numbers) -> tuple[int, ...]:
        """Where the other, arranged like this one, is furthest from it; hidden numbers count if nothing else does."""
        a, b = self.tensor, arranged
        gap = (a - b).abs().nan_to_num(nan=torch.inf).masked_fill((a == b) | (a.isnan() & b.isnan()), 0)
        if not self.agrees(arranged, other, hidden=False):
            gap = gap.masked_fill(is_hidden(a, self.lowest) | is_hidden(b, other.lowest), 0)
        place = iter(torch.unravel_index(gap.argmax(), gap.shape)) if gap.dim() else iter(())
        return tuple(0 if size == 1 else int(next(place)) for size in self.shape)

    def part_of(self, other: Numbers, ordered: bool) -> bool:
        """Is this one head or one text of the other?"""
        rest = Counter(other.sizes) - Counter(self.sizes)
        more = len(other.sizes) - len(self.sizes)
        if len(self.sizes) < 2 or more < 1 or rest.total() != more:
            return False
        axis = next(i for i, size in enumerate(other.sizes) if size in rest)
        return any((self.find if more == 1 else self.part_of)(one, ordered) for one in other.slices(axis))

    def slices(self, axis: int) -> list[Numbers]:
        """The tensors along one axis."""
        return [self.like(one) for one in self.tensor.unbind(axis)]

    def like(self, tensor: Tensor) -> Numbers:
        """Other numbers, compared as closely."""
        numbers = Numbers(tensor, self.rtol, self.atol)
        numbers.close = self.close
        return numbers

    def _distance(self, other: Numbers, size: Tensor | float) -> Tensor | float:
        if self.rtol is not None or self.atol is not None:
            return (self.atol or 0.0) + (self.rtol or 0.0) * size
        return max(self.close, other.close) * (size + max(self._size, other._size)) + _SMALLEST


def arranged(tensor: Tensor, sizes: tuple[int, ...], ordered: bool = False) -> Iterator[Tensor]:
    """Every arrangement of the tensor that has these sizes; the one that moves no axis is the first."""
    joins = tensor.dim() >= len(sizes)
    fine, coarse = (tuple(tensor.shape), sizes) if joins else (sizes, tuple(tensor.shape))
    for order in permutations(range(len(fine))):
        if not _joined(tuple(fine[i] for i in order), coarse) or (ordered and _swaps_equal(fine, order)):
            continue
        if joins:
            yield tensor.permute(order).reshape(sizes)
        else:
            back = sorted(range(len(order)), key=order.__getitem__)
            yield tensor.reshape([fine[i] for i in order]).permute(back)


def _joined(fine: tuple[int, ...], coarse: tuple[int, ...]) -> bool:
    """Do neighbouring axes of these sizes, joined as a whole, have those sizes?"""
    return set(accumulate(coarse, mul)) <= set(accumulate(fine, mul)) and prod(fine) == prod(coarse)


def _swaps_equal(sizes: tuple[int, ...], order: tuple[int, ...]) -> bool:
    return any(sizes[i] == sizes[j] for place, i in enumerate(order) for j in order[place + 1 :] if i > j)
