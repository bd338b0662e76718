"""Some heads of a report, chosen by role and layer and sorted by a statistic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import overload

from regard.heads.measure.registry import AVERAGED
from regard.heads.report.compare import HeadSummary
from regard.heads.report.listing import Listing
from regard.heads.report.roles import NAMES
from regard.heads.report.views import Head

BY = (*AVERAGED, "score")


class HeadList(Listing[Head]):
    """Heads in order; prints as a table.

    `summaries` has the role and the means of each, in the same order.
    """

    def __init__(self, heads: Sequence[Head], summaries: Sequence[HeadSummary], what: str) -> None:
        super().__init__(heads)
        self.summaries, self.what = list(summaries), what

    @overload
    def __getitem__(self, index: int) -> Head: ...
    @overload
    def __getitem__(self, index: slice) -> HeadList: ...
    def __getitem__(self, index: int | slice) -> Head | HeadList:
        if isinstance(index, slice):
            return HeadList(self._items[index], self.summaries[index], self.what)
        return self._items[index]


def choose_heads(
    portraits: Mapping[tuple[int, int], HeadSummary],
    order: Sequence[tuple[int, int]],
    role: str | Iterable[str] | None,
    layers: Sequence[int],
    by: str | None,
    descending: bool | None,
) -> list[tuple[int, int]]:
    """(layer, head) of the heads with one of these roles, in these layers, sorted; without `by`, in the given order."""
    roles = NAMES if role is None else [role] if isinstance(role, str) else list(role)
    if unknown := [one for one in roles if one not in NAMES]:
        raise ValueError(f"no role is called {unknown[0]!r}; roles are {', '.join(NAMES)}")
    if by is None and descending is not None:
        raise ValueError(f"descending={descending} needs a statistic to sort by, such as by='entropy'")
    if by is not None and by not in BY:
        raise ValueError(f"heads cannot be sorted by {by!r}; by is one of {', '.join(BY)}")
    chosen = [key for key in order if portraits[key].role.name in roles and key[0] in layers]
    return chosen if by is None else _sorted(chosen, {key: portraits[key].value(by) for key in chosen}, by, descending)


def _sorted(
    chosen: list[tuple[int, int]], values: Mapping[tuple[int, int], float], by: str, descending: bool | None
) -> list[tuple[int, int]]:
    known = [key for key in chosen if not math.isnan(values[key])]
    if chosen and not known:
        raise ValueError(
            f'"{by}" has no value in these heads, so they cannot be sorted by it; '
            "it was not collected, or no row has one"
        )
    sign = 1 if descending is False else -1
    return [*sorted(known, key=lambda key: sign * values[key]), *(key for key in chosen if key not in known)]
