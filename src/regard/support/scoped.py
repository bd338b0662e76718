"""A value for the length of a `with` block, in this thread or asyncio task only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

import torch

Value = TypeVar("Value")


class Scoped(Generic[Value]):
    """A value that is set inside a block; the innermost block wins. Outside of all blocks it is None.

    >>> size = Scoped[int]("size")
    >>> with size.set(3):
    ...     size.get()
    3
    >>> size.get() is None
    True
    """

    def __init__(self, name: str) -> None:
        self._variable: ContextVar[Value | None] = ContextVar(name, default=None)
        self.open_blocks = 0  # that are open, in all threads: while it is 0, asking costs one comparison
        self._lock = threading.Lock()

    def get(self) -> Value | None:
        """The value of the innermost block; None in a compiled graph: torch.compile traces no context variables."""
        return self._variable.get() if self.open_blocks and not torch.compiler.is_compiling() else None

    @contextmanager
    def set(self, value: Value) -> Iterator[None]:
        """Set the value inside the block."""
        before = self._variable.get()
        self._variable.set(value)
        with self._lock:
            self.open_blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self.open_blocks -= 1
            self._variable.set(before)  # not reset(): a generator may be closed in another context
