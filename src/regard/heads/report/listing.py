"""A listing: things in order, which print as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from regard.support.drawing import as_html, as_text

Item = TypeVar("Item")


class ShownAsTable:
    """An object that prints as a table, which regard.show draws."""

    def table(self, width: int = 80, all: bool = False, **options: Any) -> str:
        """The table as aligned text; all=True shows every line."""
        return as_text(self, width, all=all, **options)

    def __repr__(self) -> str:
        return as_text(self, 80)

    def _repr_html_(self) -> str:
        return as_html(self)


class Listing(ShownAsTable, Sequence[Item]):
    """Heads, changes of heads, or one token in every head, in order."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = list(items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]
