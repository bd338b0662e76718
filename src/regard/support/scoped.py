"""A value for the length of a `with` block, in this thread or asyncio task only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

Value = TypeVar("Value")


@dataclass(eq=False)
class _Block(Generic[Value]):
    """One `with` block: its value, its thread, and the block around it."""

    value: Value
    thread: int
    outer: _Block[Value] | None
    is_open: bool = True


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
        self._variable: ContextVar[_Block[Value] | None] = ContextVar(name, default=None)
        self.open_blocks = 0  # that are open, in all threads: while it is 0, asking costs one comparison
        self._lock = threading.Lock()

    def get(self) -> Value | None:
        """The value of the innermost block; None in a compiled graph, since torch.compile traces no context variables.

        None also in a thread that runs in a copy of the context, as asyncio.to_thread does.
        """
        if not self.open_blocks or torch.compiler.is_compiling():
            return None
        block = self._variable.get()
        while block is not None and not block.is_open:  # blocks may end in any order
            block = block.outer
        return block.value if block is not None and block.thread == threading.get_ident() else None

    @contextmanager
    def set(self, value: Value) -> Iterator[None]:
        block = _Block(value, threading.get_ident(), self._variable.get())
        self._variable.set(block)
        with self._lock:
            self.open_blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self.open_blocks -= 1
            block.is_open = False
            if self._variable.get() is block:  # not reset(): a generator may be closed in another context
                self._variable.set(block.outer)
