"""Steps: a name for every tensor as it passes.

`step("scores", tensor)` hands the tensor straight back. Where somebody collects (`regard.trace`), the collector is
called with it first; elsewhere nothing is kept and nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

# collector(name, value, operation, why)
Collector = Callable[[str, Tensor, str, str], None]
_collector: ContextVar[Collector | None] = ContextVar("regard_step_collector", default=None)


def step(name: str, value: Tensor, operation: str = "", why: str = "") -> Tensor:
    """Name a tensor as it passes; a trace in progress records it.

    >>> step("scores", torch.tensor([1.0, 2.0]))
    tensor([1., 2.])

    `{shape}` in the operation becomes the tensor's own shape.
    """
    if (collector := _current()) is not None:
        collector(name, value, operation, why)
    return value


def tracing() -> bool:
    """Is a collector active in this thread?"""
    return _current() is not None


@contextmanager
def collecting(collector: Collector) -> Iterator[None]:
    """Call the collector for every step in this thread, inside the block. The innermost block wins."""
    token = _collector.set(collector)
    try:
        yield
    finally:
        _collector.reset(token)


def _current() -> Collector | None:
    # A compiled graph has no steps; torch.compile does not trace context variables.
    return None if torch.compiler.is_compiling() else _collector.get()
