"""Observers: code that wants to know of every attention call, and of the route it takes, or to change its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from torch import Tensor

from regard.attention.call import Call
from regard.attention.masks import Parts
from regard.support.scoped import Scoped


@dataclass(frozen=True)
class Route:
    """One way of computing a call: its name, why it was chosen, and the function that runs it."""

    name: str
    why: str
    run: Callable[[Call, Parts], Tensor]
    leaks_nan: bool = True  # hidden values are multiplied by 0, so that a NaN reaches rows it is hidden from

    def because(self, why: str) -> Route:
        """The same route, chosen for another reason."""
        return replace(self, why=why)


@runtime_checkable
class Edit(Protocol):
    """Changes what one attention call returns; an observer that wants to change nothing returns None."""

    def context(self, context: Tensor) -> Tensor:
        """(B, H, T, D), in place of the context of the call."""

    def weights(self, weights: Tensor) -> Tensor:
        """(B, H, T, S), in place of the weights, where they are returned as well; asked after the context."""


Observer = Callable[[Call, Route], Edit | None]
_observer = Scoped[Observer]("regard_attention_observer")
_inside = Scoped[bool]("regard_inside_observed_attention")
_NOTHING = nullcontext()


def observe(observer: Observer) -> AbstractContextManager[None]:
    """Call `observer(call, route)` before every attention of this thread (or asyncio task), inside the block.

    An Edit that it returns changes the result of that attention. The innermost block wins.
    """
    return _observer.set(observer)


def is_observed() -> bool:
    """Is an observer active in this thread?"""
    return _observer.get() is not None


def inside_observed_attention() -> bool:
    """Is an observed attention running in this thread? What torch runs meanwhile is part of it, not another one."""
    return bool(_inside.get())


def observed(call: Call, route: Route) -> AbstractContextManager[Edit | None]:
    """Call the observer, if there is one, and mark the attention as running inside the block; yields its edit.

    Inside an attention that is observed already, nothing happens: what runs there is part of it.
    """
    observer = _observer.get()
    return _NOTHING if observer is None or _inside.get() else _observed(observer, call, route)


def unobserved() -> AbstractContextManager[None]:
    """Call no observer inside the block."""
    return _inside.set(True)


@contextmanager
def _observed(observer: Observer, call: Call, route: Route) -> Iterator[Edit | None]:
    edit = observer(call, route)
    with _inside.set(True):
        yield edit
