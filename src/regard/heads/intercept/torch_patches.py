"""Attributes of torch that are replaced while at least one watch is active, in any thread.

The replacements are process-wide; each of them must decide by itself whether its thread is watching. Compiled code runs
eagerly meanwhile, because a compiled graph makes no calls that could be intercepted.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NamedTuple

import torch

COMPILER = "torch._dynamo"


class Patch(NamedTuple):
    """`owner.name` becomes `wrap(owner.name)`."""

    owner: Any
    name: str
    wrap: Callable[[Any], Any]


class Patches:
    """A set of patches, shared by all threads: the first user applies them and the last one removes them."""

    def __init__(self, patches: Sequence[Patch]) -> None:
        self.patches = tuple(patches)
        self._lock = threading.Lock()
        self._users = 0
        self._undo = ExitStack()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Keep the patches in place inside the block."""
        with self._lock:
            if not self._users:
                self._apply()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._undo.close()

    def _apply(self) -> None:
        patches = self.patches
        if COMPILER in sys.modules:
            self._run_eagerly()
        else:  # importing it takes seconds
            patches = (*patches, Patch(torch, "compile", self._compiling))
        for owner, name, wrap in patches:
            original = getattr(owner, name)
            self._undo.callback(setattr, owner, name, original)
            setattr(owner, name, wrap(original))

    def _run_eagerly(self) -> None:
        self._undo.enter_context(torch.compiler.set_stance("force_eager"))

    def _compiling(self, original: Any) -> Any:
        """torch.compile, for the first time: by the model, or by FlexAttention, which compiles itself."""
        first = True

        @wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            nonlocal first
            with self._lock:
                if first and self._users:
                    self._run_eagerly()
                first = False
            return original(*args, **kwargs)

        return compile
