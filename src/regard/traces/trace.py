"""Trace: the named steps of one run, in order, with operation, shape, values and a reason.

Code that names no steps can be traced too: its tensor operations are named by torch_calls.py.
"""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard.steps import collecting
from regard.traces.torch_calls import AROUND_SOFTMAX, Operations, explain_failure

Value = TypeVar("Value")

# Why a learner should care about each step, in the words used everywhere in the project.
WHY = {
    "x": "one vector a token",
    "context x": "the sequence to look at",
    "queries": "what a token looks for",
    "keys": "what a token offers",
    "values": "what it hands over",
    "split": "each head gets its share",
    "transpose": "heads side by side",
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


@dataclass(frozen=True)
class Step:
    """One named tensor on its way through a layer."""

    name: str
    operation: str
    value: Tensor
    why: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return tuple(self.value.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The tensor's dtype."""
        return self.value.dtype


@dataclass(frozen=True)
class Difference:
    """The first step at which two traces part."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


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

    def __init__(self, module: torch.nn.Module | None = None) -> None:
        self.out: Any = None
        self._title = type(module).__name__ if module is not None else ""
        self._named: list[Step] = []
        self._seen: dict[str, int] = {}
        self._operations = Operations(module)
        self._collecting: AbstractContextManager[None] | None = None

    def __enter__(self) -> Trace:
        self._collecting = collecting(self._record)
        self._collecting.__enter__()
        self._operations.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        assert self._collecting is not None
        self._collecting.__exit__(None, None, None)
        self._operations.__exit__(kind, error, where)  # type: ignore[no-untyped-call]
        if isinstance(error, Exception) and (clearer := explain_failure(error)):
            raise clearer from error

    def _record(self, name: str, value: Tensor, operation: str, why: str) -> None:
        self._operations.forget()  # named steps say it all; until the first, nobody knew there would be any
        with self._operations.paused():
            count = self._seen[name] = self._seen.get(name, 0) + 1
            sizes = ", ".join(str(size) for size in value.shape)
            # A copy: code that comes later may change the tensor in place.
            self._named.append(
                Step(
                    name if count == 1 else f"{name} {count}",
                    operation.replace("{shape}", sizes),
                    value.detach().clone(),
                    why or WHY.get(name, ""),
                )
            )

    @property
    def steps(self) -> list[Step]:
        """The named steps; where the code named none, its tensor operations."""
        if self._named:
            return self._named
        return [
            # Of code that names nothing, only what stands around the softmax is known for sure.
            Step(name, operation, value, WHY[word] if (word := name.split(" ")[0]) in AROUND_SOFTMAX else "")
            for name, operation, value in self._operations.named()
        ]

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
        if isinstance(key, int):
            return self.steps[key].value
        for s in self.steps:
            if s.name == key:
                return s.value
        raise KeyError(f"no step is called {key!r}; this trace has {', '.join(self.names) or 'none'}")

    def diff(self, other: Trace, rtol: float | None = None, atol: float | None = None) -> Difference | None:
        """Name the first step that differs, or None where all agree.

        >>> from regard.steps import step
        >>> with trace() as a, trace() as b:
        ...     _ = step("scores", torch.ones(2))
        >>> print(b.diff(b))
        None
        """
        if (rtol is None) != (atol is None):
            rtol, atol = rtol or 0.0, atol or 0.0
        theirs = {s.name: s for s in other.steps}
        for mine in self.steps:
            if mine.name not in theirs:
                return Difference(mine.name, f"only one trace has it; the other has {', '.join(theirs) or 'no steps'}")
            its = theirs.pop(mine.name)
            if mine.shape != its.shape:
                return Difference(mine.name, f"shape {_shape(mine.shape)} against {_shape(its.shape)}")
            try:
                torch.testing.assert_close(
                    mine.value, its.value, rtol=rtol, atol=atol, equal_nan=True, check_dtype=False
                )
            except AssertionError as error:
                return Difference(mine.name, _values_differ(mine, its, str(error)))
        if theirs:
            return Difference(next(iter(theirs)), "only the other trace has it")
        return None

    def __repr__(self) -> str:
        return self.table(shutil.get_terminal_size((80, 24)).columns)

    def table(self, width: int = 80) -> str:
        """The steps as aligned text, at most `width` columns wide."""
        rows = [("step", "operation", "shape", "why"), *_rows(self.steps)]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        widths[1] = max(9, min(widths[1], width - 2 - widths[0] - widths[2] - 6 - 12))
        lines = [_cut(self._heading(), width), ""]
        for row in rows:
            cells = [_cut(row[i], widths[i]).ljust(widths[i]) for i in range(3)]
            room = width - 2 - sum(widths) - 6
            lines.append(("  " + "  ".join([*cells, _cut(row[3], room)])).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th style='text-align:left'>{h}</th>" for h in ("step", "operation", "shape", "why"))
        body = "".join(
            "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in _rows(self.steps)
        )
        return (
            f"<p>{html.escape(self._heading())}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _heading(self) -> str:
        count = len(_rows(self.steps))
        dtypes = sorted({str(s.dtype).removeprefix("torch.") for s in self.steps})
        parts = [self._title, f"{count} step{'s' * (count != 1)}", ", ".join(dtypes)]
        return "  " + " · ".join(part for part in parts if part)


def trace(module: torch.nn.Module | None = None, *args: Any, **kwargs: Any) -> Trace:
    """See what a layer does, step by step.

    >>> layer = torch.nn.Linear(3, 2, bias=False)
    >>> trace(layer, torch.ones(4, 3)).names
    ['linear']

    `trace(layer, x)` runs the layer once and keeps its result as `.out`. `with trace() as t:` follows whatever
    runs inside. The table prints by itself; `t["weights"]` is a tensor; `t.diff(other)` names the first difference.
    """
    if module is None:
        return Trace()
    if error := explain_failure(module):
        raise error
    collected = Trace(module)
    with collected:
        collected.out = module(*args, **kwargs)
    return collected


def _rows(steps: list[Step]) -> list[tuple[str, str, str, str]]:
    """Table rows; what happens to keys and values exactly as to queries is told once."""
    rows: list[tuple[str, str, str, str]] = []
    for s in steps:
        row = (s.name, s.operation, _shape(s.shape), s.why)
        parent = re.sub(r" (keys|values)(?=( \d+)?$)", "", s.name)  # "split keys", and "split keys 2"
        if parent != s.name and (parent, *row[1:3]) in [r[:3] for r in rows]:
            continue
        rows.append(row)
    return rows


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "one number"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _values_differ(mine: Step, its: Step, message: str) -> str:
    a, b = mine.value.double(), its.value.double()
    gap = (a - b).abs().nan_to_num(nan=torch.inf).masked_fill((a == b) | (a.isnan() & b.isnan()), 0)
    where = tuple(int(i) for i in torch.unravel_index(gap.argmax(), gap.shape)) if gap.dim() else ()
    count = next((line for line in message.splitlines() if line.startswith("Mismatched")), "").lower()
    at = f" at {list(where)}" if where else ""
    return f"{mine.value[where].item():.6g} against {its.value[where].item():.6g}{at}" + (f"; {count}" if count else "")
