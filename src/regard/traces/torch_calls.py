"""Torch calls: every torch function that runs inside a trace, recorded with its operation, inputs and result.

For code that names steps, labels.py writes each step's operation from the calls. For code that names none, the calls
are the steps: around the softmax they get the usual names (scores, mask, scaled, weights, context); elsewhere a step
is named after the submodule or the function that made it. `t.diff` needs the inputs: where a step is wrong, everything
made from it is wrong too, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils.weak import WeakTensorKeyDictionary

from regard.support.hidden_scores import HIDES_IN_EXAMPLE, is_hidden
from regard.traces.failures import explain_call
from regard.traces.labels import COPIES, Labels, sizes

AROUND_SOFTMAX = {"scores", "mask", "scaled", "weights", "context"}  # the names that named_calls() gives
_PRODUCTS = {"matmul", "bmm", "mm", "einsum", "baddbmm"}
_MASKS = {"masked_fill", "where", "setitem"}
_SUMS = {"add", "iadd", "sub", "isub"}  # a mask may be added
_SCALES = {"div", "truediv", "itruediv", "mul", "imul", "rmul"}
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
    found = {number}
    for i in range(number, -1, -1):
        if i in found:
            found.update(steps[i].inputs)
    return found - {number, OUTSIDE}


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


class TorchCalls(TorchFunctionMode):
    """Record the name, operation and result of every torch function called inside."""

    def __init__(self, module: nn.Module | None = None) -> None:
        super().__init__()
        self.calls: list[Step] = []
        self.labels = Labels(module)
        self.lineage, self._call_lineage = Lineage(), Lineage()  # by named steps, and by calls
        self._paused = self._labels_only = False

    def keep_labels_only(self) -> None:
        """Drop the calls and record no more; tensors are still labelled and errors explained."""
        self.calls.clear()
        self._labels_only = True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing inside: the trace itself uses torch functions too."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        is_property = name == "__get__"
        if is_property:
            name = func.__self__.__name__  # type: ignore[attr-defined]
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            if clearer := explain_call(name, args, error):
                raise clearer from error
            raise
        made = args[0] if name == "__setitem__" else result
        if not self._paused and isinstance(made, (Tensor, tuple, list)) and resolve_name(func) is not None:
            with self.paused():
                self._record(name, args, kwargs, made, is_property)
        return result

    def _record(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, is_property: bool) -> None:
        for lineage in (self.lineage,) if self._labels_only else (self.lineage, self._call_lineage):
            if isinstance(result, Tensor) and args and result is args[0]:
                lineage.change(result, (args, kwargs))
            else:
                lineage.follow((args, kwargs), result)
        if isinstance(result, Tensor) and not (self._labels_only or is_property or name in COPIES or name == "tensor"):
            owner = self.labels.owner(name, args, kwargs)
            operation = self.labels.call(name, args, kwargs, sizes).text
            inputs = self._call_lineage.mark(result, len(self.calls))
            name_of_call = owner.path if owner else name.strip("_")
            self.calls.append(Step(name_of_call, operation, result.detach().clone(), inputs))
        self.labels.follow(name, args, kwargs, result)


def _hides(scores: Tensor) -> bool:
    return not scores.is_meta and not scores.is_complex() and bool(is_hidden(scores, HIDES_IN_EXAMPLE).any())


def named_calls(calls: list[Step]) -> list[Step]:
    """The calls, with the names of attention around each softmax and a number on repeated names."""
    names = [call.name for call in calls]
    for i in [i for i, name in enumerate(names) if name == "softmax"]:
        names[i] = "weights"
        before = ancestors(calls, i)
        product = next((j for j in sorted(before, reverse=True) if names[j] in _PRODUCTS), None)
        if product is not None:
            names[product] = "scores"
            for j in before & descendants(calls, product):
                if names[j] in _MASKS or (names[j] in _SUMS and _hides(calls[j].value)):
                    names[j] = "mask"
                elif names[j] in _SCALES:
                    names[j] = "scaled"
        after = next((j for j in sorted(descendants(calls, i)) if names[j] in _PRODUCTS), None)
        if after is not None:
            names[after] = "context"
    return [replace(call, name=name) for call, name in zip(calls, numbered(names), strict=True)]


def numbered(names: list[str]) -> list[str]:
    """Names that are used again, with a number: x, y, x 2."""
    counts: Counter[str] = Counter()
    result = []
    for name in names:
        counts[name] += 1
        result.append(name if counts[name] == 1 else f"{name} {counts[name]}")
    return result
