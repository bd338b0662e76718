"""Cases of which some run in `make test`, and the rest in `make slow`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def quick_every(n: int, values: Iterable[Any], name: Callable[[Any], str] | None = None) -> list[Any]:
    """Each n-th value is quick, the first among them; the others are marked slow."""
    return [_case(value, i % n == 0, name) for i, value in enumerate(values)]


def quick_only(quick: Sequence[Any], values: Iterable[Any], name: Callable[[Any], str] | None = None) -> list[Any]:
    """These are quick; the others are marked slow."""
    return [_case(value, value in quick, name) for value in values]


def _case(value: Any, is_quick: bool, name: Callable[[Any], str] | None) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=() if is_quick else pytest.mark.slow, id=None if name is None else name(value))
