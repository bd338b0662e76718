"""Steps: a name for every tensor of a computation.

`step("scores", tensor)` returns the tensor unchanged. Inside `regard.trace` a collector is called with it first;
elsewhere nothing is kept and nothing is computed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

# collector(name, value, operation, why)
Collector = Callable[[str, Tensor, str, str], None]
_collector: ContextVar[Collector | None] = ContextVar("regard_step_collector", default=None)
_active = 0  # blocks that collect, in all threads: while it is 0, a step costs one comparison
_lock = threading.Lock()


def step(name: str, value: Tensor, operation: str = "", why: str = "") -> Tensor:
    """Name a tensor and return it unchanged; a trace in progress records it.

    >>> step("scores", torch.tensor([1.0, 2.0]))
    tensor([1., 2.])

    operation: shown by the trace instead of the torch functions that made the tensor. Give it only where what runs is a
        faster or safer form of what it means.
    why: the reason shown beside it; the steps of attention have one by default.
    """
    if _active and (collector := _current()) is not None:
        collector(name, value, operation, why)
    return value


def tracing() -> bool:
    """Is a collector active in this thread?"""
    return bool(_active) and _current() is not None


@contextmanager
def collecting(collector: Collector) -> Iterator[None]:
    """Call the collector for every step in this thread (or asyncio task), inside the block. The innermost block wins."""
    global _active
    before = _collector.get()
    _collector.set(collector)
    with _lock:
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1
        _collector.set(before)  # not reset(): a generator may be closed in another context


def _current() -> Collector | None:
    # A compiled graph has no steps; torch.compile does not trace context variables.
    return None if torch.compiler.is_compiling() else _collector.get()
