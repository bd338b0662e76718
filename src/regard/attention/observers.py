"""The door of attend(): whoever observes is told of every attention that goes in, and of the way it takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from regard.attention.masks import Mask


@dataclass(frozen=True)
class Path:
    """The way attend() takes, and why not a faster one."""

    name: str
    why: str


# observer(path, q, k, v, dropout, mask, scale, alibi)
Observer = Callable[[Path, Tensor, Tensor, Tensor, float, Mask, float | None, Tensor | None], None]
_observers: dict[int, Observer] = {}  # by thread: each observes its own attention only
_inside: set[int] = set()  # threads in which an observed attention runs


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Tell `observer(path, q, k, v, dropout, mask, scale, alibi)` of every attention inside, whichever way it takes."""
    thread = threading.get_ident()
    before = _observers.get(thread)
    _observers[thread] = observer
    try:
        yield
    finally:
        if before is None:
            del _observers[thread]
        else:
            _observers[thread] = before


def observed() -> bool:
    """Does anybody in this thread want to be told?"""
    return bool(_observers) and threading.get_ident() in _observers


def busy() -> bool:
    """Is an observed attention of ours running? What torch does meanwhile is its inside, not another attention."""
    return threading.get_ident() in _inside


@contextmanager
def telling(
    path: Path, q: Tensor, k: Tensor, v: Tensor, dropout: float, mask: Mask, scale: float | None, alibi: Tensor | None
) -> Iterator[None]:
    """Tell the observer of an attention, and be busy while it runs."""
    thread = threading.get_ident()
    _observers[thread](path, q, k, v, dropout, mask, scale, alibi)
    outer = thread in _inside
    _inside.add(thread)
    try:
        yield
    finally:
        if not outer:
            _inside.discard(thread)
