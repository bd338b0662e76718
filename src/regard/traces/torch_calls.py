"""Torch calls: every torch function that runs inside a trace, recorded with its operation and result.

For code that names steps, labels.py writes each step's operation from the calls. For code that names none, the calls
are the steps: around the softmax they get the usual names (scores, mask, scaled, weights, context); elsewhere a step
is named after the submodule or the function that made it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from regard.support.hidden_scores import HIDES_IN_EXAMPLE, is_hidden
from regard.traces.failures import explain_call
from regard.traces.labels import COPIES, Labels, sizes
from regard.traces.lineage import Lineage, Step, ancestors, descendants

AROUND_SOFTMAX = {"scores", "mask", "scaled", "weights", "context"}  # the names that named_calls() gives
_PRODUCTS = {"matmul", "bmm", "mm", "einsum", "baddbmm"}
_MASKS = {"masked_fill", "where", "setitem"}
_SUMS = {"add", "iadd", "sub", "isub"}  # a mask may be added
_SCALES = {"div", "truediv", "itruediv", "mul", "imul", "rmul"}


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


def _hides(scores: Tensor) -> bool:
    """Are some scores so low that softmax makes them 0?"""
    return not scores.is_meta and bool(is_hidden(scores, HIDES_IN_EXAMPLE).any())


def numbered(names: list[str]) -> list[str]:
    """Names that are used again, with a number.

    >>> numbered(["x", "y", "x"])
    ['x', 'y', 'x 2']
    """
    counts: Counter[str] = Counter()
    result = []
    for name in names:
        counts[name] += 1
        result.append(name if counts[name] == 1 else f"{name} {counts[name]}")
    return result
