"""Trace: the named steps of one run, in order, with operation, shape, values and a reason.

The operation is the text of the torch functions that made the tensor, unless the step gives one of its own. Code that
names no steps can be traced too: torch_calls.py names its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from regard.steps import collecting
from regard.support.drawing import as_figure, as_html, as_text
from regard.traces.differences import Difference, find_difference
from regard.traces.failures import describe_argument, explain_arguments, explain_failure
from regard.traces.lineage import Step
from regard.traces.torch_calls import AROUND_SOFTMAX, TorchCalls, named_calls

# Why a learner should care about each step, in the words used everywhere in the project.
WHY = {
    "x": "one vector per token",
    "source": "the sequence to look at",
    "queries": "what a token looks for",
    "keys": "what a token offers",
    "values": "what it hands over",
    "split": "each head gets its share",
    "transpose": "heads side by side",
    "transpose keys": "heads side by side",
    "transpose values": "heads side by side",
    "scores": "every query, every key",
    "mask": "hidden keys get −∞",
    "scaled": "variance back near 1",
    "weights": "each row sums to 1",
    "dropout": "in training only",
    "context": "values mixed by weight",
    "back": "tokens first again",
    "concat": "heads joined",
    "out": "heads mixed together",
}
SPLITS = {"split", "split keys", "split values"}  # their reason is the number of heads, from the shape


class Trace:
    """The ordered, named steps of one run.

    >>> from regard.steps import step
    >>> with trace() as t:
    ...     _ = step("scores", torch.ones(2, 3), "queries @ keys.mT")
    >>> t["scores"].shape
    torch.Size([2, 3])
    >>> t.names
    ['scores']
    """

    def __init__(self, module: Callable[..., Any] | None = None) -> None:
        self.out: Any = None
        self.input: Tensor | None = None  # the first tensor that went into `trace(layer, x)`
        self.title = "" if module is None else getattr(module, "__name__", type(module).__name__)
        self._named: list[Step] = []
        self._seen: dict[str, int] = {}
        self._calls = TorchCalls(module if isinstance(module, torch.nn.Module) else None)
        self._collecting: AbstractContextManager[None] | None = None

    def __enter__(self) -> Trace:
        self._collecting = collecting(self._record)
        self._collecting.__enter__()
        self._calls.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        assert self._collecting is not None
        try:
            self._collecting.__exit__(None, None, None)
        finally:
            self._calls.__exit__(kind, error, where)  # type: ignore[no-untyped-call]
        self._collecting = None
        self._calls.drop_labels()  # they refer to the module, and cannot be pickled
        if isinstance(error, Exception) and (clearer := explain_failure(error)):
            raise clearer from error

    def _record(self, name: str, value: Tensor, operation: str, why: str) -> None:
        self._calls.keep_labels_only()  # from the first named step on, the steps are those that the code names
        with self._calls.paused():
            made_by = self._calls.labels.name(value, name)
            operation = operation or made_by
            inputs = self._calls.lineage.mark(value, len(self._named))
            self._seen[name] = self._seen.get(name, 0) + 1
            number = f" {self._seen[name]}" if self._seen[name] > 1 else ""
            # A copy: code that comes later may change the tensor in place.
            self._named.append(
                Step(name + number, operation, value.detach().clone(), inputs, why or _reason(name, operation, value))
            )

    @property
    def steps(self) -> list[Step]:
        """The named steps; where the code named none, its tensor operations."""
        if self._named:
            return self._named
        return [
            # In code that names nothing, only the calls around the softmax are certain to be what they are called.
            replace(call, why=WHY[word]) if (word := call.name.split(" ")[0]) in AROUND_SOFTMAX else call
            for call in named_calls(self._calls.calls)
        ]

    @property
    def has_names(self) -> bool:
        """Does the code name its steps? Else they are its tensor operations."""
        return bool(self._named)

    @property
    def names(self) -> list[str]:
        """The steps' names, in order."""
        return [s.name for s in self.steps]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, key: str | int) -> Tensor:
        return self.steps[key].value if isinstance(key, int) else self.find(key).value

    def find(self, name: str) -> Step:
        """The step of this name, with its operation and reason."""
        for s in self.steps:
            if s.name == name:
                return s
        raise KeyError(f"no step is called {name!r}; this trace has {', '.join(self.names) or 'none'}")

    def diff(self, other: Trace, rtol: float | None = None, atol: float | None = None) -> Difference | None:
        """Name the first step that differs, or None where all agree.

        >>> from regard.steps import step
        >>> with trace() as a, trace() as b:
        ...     _ = step("scores", torch.ones(2))
        >>> print(b.diff(b))
        None
        """
        if not isinstance(other, Trace):
            given = describe_argument(other)
            raise TypeError(f"diff takes another trace, but other is {given}; write t.diff(regard.trace(layer, x))")
        return find_difference(self, other, rtol, atol)

    def table(self, width: int = 80) -> str:
        """The steps as aligned text, at most `width` columns wide."""
        return as_text(self, width)

    def plot(self, ax: Any = None, text: int = 0, head: int = 0, width: float | None = None) -> Any:
        """The tensors of one text and one head as small pictures, in order; returns the matplotlib Axes.

        ax: draw into this Axes, else into a new figure that is `width` inches wide. [default: 6.9]
        """
        return as_figure(self, ax=ax, text=text, head=head, width=width)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def trace(module: Any = None, *args: Any, **kwargs: Any) -> Trace:
    """See what a layer does, step by step.

    >>> layer = torch.nn.Linear(3, 2, bias=False)
    >>> trace(layer, torch.ones(4, 3)).names
    ['linear']

    `trace(layer, x)` runs the layer, or a function, once and keeps its result as `.out`. `with trace() as t:` traces
    whatever runs inside, in this thread. The table prints by itself; `t["weights"]` is a tensor; `t.diff(other)` names
    the first difference.
    """
    if error := explain_arguments(module, args, kwargs) or explain_failure(module):
        raise error
    if module is None:
        return Trace()
    collected = Trace(module)
    x = next((one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)), None)
    collected.input = None if x is None else x.detach().clone()  # a copy: the layer may change it in place
    with collected:
        collected.out = module(*args, **kwargs)
    return collected


def _reason(name: str, operation: str, value: Tensor) -> str:
    """Why a learner should care about this step."""
    is_split = operation.startswith(("view(", "unflatten(", "reshape(")) and ")." not in operation
    if name in SPLITS and value.dim() > 2 and is_split:
        heads, width = value.shape[-2:]
        return f"{heads} head{'s' * (heads != 1)} of {width}"
    return WHY.get(name, "")
