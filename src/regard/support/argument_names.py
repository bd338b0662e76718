"""How a message names an argument: `steps (7)` to whoever called Python, `--steps 7` to whoever typed a flag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_SPELLED = {("resume", False): "--fresh"}  # switches that have a name of their own
_flags: ContextVar[frozenset[str]] = ContextVar("flags", default=frozenset())


@contextmanager
def named_as_flags(*names: str) -> Iterator[None]:
    """Inside this block, messages name these arguments by the flags of the command line.

    >>> with named_as_flags("top_k"):
    ...     named("top_k", -1), assigned("seed", 7)
    ('--top-k -1', 'seed=7')
    """
    before = _flags.set(_flags.get().union(names))
    try:
        yield
    finally:
        _flags.reset(before)


def named(name: str, value: Any, shown: Callable[[Any], str] = str) -> str:
    """An argument and its value, as the subject of a message; shown: how Python code writes the value.

    >>> named("steps", 7), named("dtype", "fp16", repr)
    ('steps (7)', "dtype ('fp16')")
    """
    return f"{as_flag(name)} {value}" if name in _flags.get() else f"{name} ({shown(value)})"


def assigned(name: str, value: Any) -> str:
    """An argument with a value to give it, as a remedy: context_length=16.

    >>> with named_as_flags("resume"):
    ...     assigned("resume", False)
    '--fresh'
    """
    return _SPELLED.get((name, value), f"{as_flag(name)} {value}") if name in _flags.get() else f"{name}={value}"


def as_flag(name: str) -> str:
    """An argument as a flag: --max-new-tokens."""
    return "--" + name.replace("_", "-")
