"""Some heads of a report, chosen by role and layer and sorted by a statistic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

from regard.heads.measure.registry import AVERAGED
from regard.heads.report.compare import HeadSummary
from regard.heads.report.roles import NAMES
from regard.heads.report.views import Head
from regard.support.drawing import as_html, as_text

BY = (*AVERAGED, "score")


class HeadList(Sequence[Head]):
    """Heads in order; prints as a table.

    `summaries` has the role and the means of each, in the same order.
    """

    def __init__(self, heads: Sequence[Head], summaries: Sequence[HeadSummary], what: str) -> None:
        self._heads, self.summaries, self.what = list(heads), list(summaries), what

    def __len__(self) -> int:
        return len(self._heads)

    def __iter__(self) -> Iterator[Head]:
        return iter(self._heads)

    @overload
    def __getitem__(self, index: int) -> Head: ...
    @overload
    def __getitem__(self, index: slice) -> HeadList: ...
    def __getitem__(self, index: int | slice) -> Head | HeadList:
        if isinstance(index, slice):
            return HeadList(self._heads[index], self.summaries[index], self.what)
        return self._heads[index]

    def table(self, width: int = 80, all: bool = False) -> str:
        """The heads as aligned text; all=True shows every one."""
        return as_text(self, width, all=all)

    def __repr__(self) -> str:
        return as_text(self, 80)

    def _repr_html_(self) -> str:
        return as_html(self)


def choose_heads(
    portraits: Mapping[tuple[int, int], HeadSummary],
    order: Sequence[tuple[int, int]],
    role: str | Iterable[str] | None,
    layers: Sequence[int] | None,
    by: str | None,
    descending: bool | None,
) -> list[tuple[int, int]]:
    """(layer, head) of the heads with one of these roles, in these layers, sorted; without `by`, in the given order."""
    roles = [role] if isinstance(role, str) else None if role is None else list(role)
    if unknown := [one for one in roles or () if one not in NAMES]:
        raise ValueError(f"no role is called {unknown[0]!r}; roles are {', '.join(NAMES)}")
    if by is None and descending is not None:
        raise ValueError(f"descending={descending} needs a statistic to sort by, such as by='entropy'")
    if by is not None and by not in BY:
        raise ValueError(f"heads cannot be sorted by {by!r}; by is one of {', '.join(BY)}")
    chosen = [
        key
        for key in order
        if (roles is None or portraits[key].role.name in roles) and (layers is None or key[0] in layers)
    ]
    if by is None:
        return chosen
    values = {
        key: portraits[key].role.score if by == "score" else portraits[key].means.get(by, math.nan) for key in chosen
    }
    if chosen and all(math.isnan(value) for value in values.values()):
        raise ValueError(
            f'"{by}" has no value in these heads, so they cannot be sorted by it; it was not collected, or no row has one'
        )
    sign = 1 if descending is False else -1  # heads without a value come last
    return sorted(
        chosen, key=lambda key: (math.isnan(values[key]), sign * values[key] if values[key] == values[key] else 0)
    )
