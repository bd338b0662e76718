"""Torch calls: every torch function that runs inside a trace, recorded with its operation and result.

For code that names steps, labels.py writes each step's operation from the calls. For code that names none, the calls
are the steps: around the softmax they get the usual names (scores, mask, scaled, weights, context); elsewhere a step
is named after the submodule or the function that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from regard.traces.failures import explain_call
from regard.traces.labels import COPIES, Labels, sizes

AROUND_SOFTMAX = {"scores", "mask", "scaled", "weights", "context"}  # the names that named_calls() gives
_PRODUCTS = {"matmul", "bmm", "mm", "einsum", "baddbmm"}
_MASKS = {"masked_fill", "where"}
_SCALES = {"div", "truediv", "itruediv", "mul", "imul", "rmul"}


class TorchCall(NamedTuple):
    """One call of a torch function."""

    name: str
    operation: str
    value: Tensor


class TorchCalls(TorchFunctionMode):
    """Record the name, operation and result of every torch function called inside."""

    def __init__(self, module: nn.Module | None = None) -> None:
        super().__init__()
        self.calls: list[TorchCall] = []
        self.labels = Labels(module)
        self._paused = self._labels_only = False

    def drop_labels(self) -> None:
        """Forget which tensors and modules have labels; the recorded calls stay."""
        self.__dict__.pop("labels", None)

    def __enter__(self) -> TorchCalls:
        self.__dict__.setdefault("labels", Labels(None))  # for a trace that is entered again
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

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
        if not self._paused and isinstance(result, (Tensor, tuple, list)) and resolve_name(func) is not None:
            with self.paused():
                self._record(name, args, kwargs, result, is_property)
        return result

    def _record(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, is_property: bool) -> None:
        if isinstance(result, Tensor) and not (self._labels_only or is_property or name in COPIES or name == "tensor"):
            owner = self.labels.owner(name, args, kwargs)
            operation = self.labels.call(name, args, kwargs, sizes).text
            self.calls.append(TorchCall(owner.path if owner else name.strip("_"), operation, result.detach().clone()))
        self.labels.follow(name, args, kwargs, result)


def named_calls(calls: list[TorchCall]) -> list[TorchCall]:
    """The calls, with the names of attention around each softmax and a number on repeated names."""
    names = [call.name for call in calls]
    for i in [i for i, name in enumerate(names) if name == "softmax"]:
        names[i] = "weights"
        for j in range(i - 1, -1, -1):
            if names[j] in _PRODUCTS:
                names[j] = "scores"
                break
            if names[j] in _MASKS:
                names[j] = "mask"
            elif names[j] in _SCALES:
                names[j] = "scaled"
        after = next((j for j in range(i + 1, len(names)) if names[j] in _PRODUCTS), None)
        if after is not None:
            names[after] = "context"
    return [call._replace(name=name) for call, name in zip(calls, numbered(names), strict=True)]


def numbered(names: list[str]) -> list[str]:
    """Names that are used again, with a number.

    >>> numbered(["x", "y", "x"])
    ['x', 'y', 'x 2']
    """
    counts: dict[str, int] = {}
    result = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        result.append(name if counts[name] == 1 else f"{name} {counts[name]}")
    return result
