"""Observers: code that wants to know of every attention call, and of the route it takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch

from regard.attention.call import Call
from regard.attention.fused import Route

Observer = Callable[[Call, Route], None]
_observer: ContextVar[Observer | None] = ContextVar("regard_attention_observer", default=None)
_active = 0  # blocks that observe, in all threads: while it is 0, asking costs one comparison
_lock = threading.Lock()
_inside: ContextVar[bool] = ContextVar("regard_inside_observed_attention", default=False)


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Call `observer(call, route)` before every attention of this thread (or asyncio task), inside the block. The innermost block wins."""
    global _active
    before = _observer.get()
    _observer.set(observer)
    with _lock:
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1
        _observer.set(before)  # not reset(): a generator may be closed in another context


def is_observed() -> bool:
    """Is an observer active in this thread?"""
    return bool(_active) and not torch.compiler.is_compiling() and _observer.get() is not None


def inside_observed_attention() -> bool:
    """Is an observed attention running in this thread? What torch runs meanwhile is part of it, not another one."""
    return _inside.get()


def observed(call: Call, route: Route) -> AbstractContextManager[None]:
    """Call the observer, if there is one, and mark the attention as running inside the block."""
    return _observed(call, route) if is_observed() else _NOTHING


_NOTHING = nullcontext()


@contextmanager
def _observed(call: Call, route: Route) -> Iterator[None]:
    observer = _observer.get()
    assert observer is not None
    observer(call, route)
    before = _inside.get()
    _inside.set(True)
    try:
        yield
    finally:
        _inside.set(before)
