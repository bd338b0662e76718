"""Lineage: a step of a trace, and which earlier steps its tensor was made from.

Every torch function hands the steps behind its arguments on to its result, until the result becomes a step itself.
`t.diff` needs it: where a step is wrong, everything made from it is wrong too, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

OUTSIDE = -1  # stands for tensors that no step made: the input, parameters and buffers


@dataclass(frozen=True)
class Step:
    """One named tensor on its way through a layer: of a step that the code names, or of a call of a torch function."""

    name: str
    operation: str
    value: Tensor
    inputs: tuple[int, ...] = ()  # the numbers of the steps that it was made from; −1 for a tensor from outside
    why: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype


class Lineage:
    """The numbers of the steps that each tensor was made from."""

    def __init__(self) -> None:
        self._sources: Any = WeakTensorKeyDictionary()

    def follow(self, arguments: Any, result: Any) -> None:
        """The result was made from the tensors among the arguments, which may be nested."""
        sources: frozenset[int] = frozenset().union(*map(self._of, tensors_in(arguments)))
        for tensor in tensors_in(result):
            self._sources[tensor] = sources

    def change(self, tensor: Tensor, arguments: Any) -> None:
        """The tensor was changed in place; if it is a view, so was the tensor that it views."""
        for changed in (tensor, tensor._base):
            if changed is not None:
                self.follow((changed, arguments), changed)

    def mark(self, tensor: Tensor, number: int) -> tuple[int, ...]:
        """Make the tensor a step with this number; return the numbers of the steps that it was made from."""
        sources = self._of(tensor)
        self._sources[tensor] = frozenset({number})
        return tuple(sorted(sources))

    def _of(self, tensor: Tensor) -> frozenset[int]:
        sources: frozenset[int] = self._sources.get(tensor, frozenset({OUTSIDE}))
        return sources


def ancestors(steps: Sequence[Step], number: int) -> set[int]:
    """The steps that this one was made from, directly or by way of others."""
    found: set[int] = set()
    waiting = [number]
    while waiting:
        new = {i for i in steps[waiting.pop()].inputs if i != OUTSIDE} - found
        found |= new
        waiting += new
    return found


def descendants(steps: Sequence[Step], number: int) -> set[int]:
    """The steps that were made from this one, directly or by way of others."""
    found = {number}
    for i in range(number + 1, len(steps)):
        if not found.isdisjoint(steps[i].inputs):
            found.add(i)
    return found - {number}


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of a value that may be nested."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(one)
