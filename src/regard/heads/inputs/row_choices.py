"""Rows that are cut from a tensor, or chosen by a list of numbers, and that are joined or written back later.

Tokens that are sorted and unsorted again, or that each go to an expert, are the same tokens in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.heads.inputs.row_relation import RowOrigin

Derive = Callable[[Hashable, RowOrigin], RowOrigin]


class _Choice(NamedTuple):
    """Rows that were chosen: of what, along which axis of how many, and which."""

    base: RowOrigin
    axis: int
    total: int
    rows: Tensor


class RowChoices:
    """The rows that were chosen or cut in a forward, by their row space; derive: makes new rows of others."""

    def __init__(self, derive: Derive) -> None:
        self._derive = derive
        self._cuts: dict[int, tuple[RowOrigin, int, int]] = {}  # of what, from where on, how many
        self._choices: dict[int, _Choice] = {}

    def cut(self, origin: RowOrigin, part: tuple[int, int, int]) -> RowOrigin:
        """Some rows: the first, how many, and the step."""
        rows = self._derive(("part", part), origin)._replace(length=part[1])
        if part[2] == 1:
            self._cuts[min(rows.rows)] = origin, *part[:2]
        return rows

    def joined(self, parts: Sequence[RowOrigin]) -> RowOrigin | None:
        """What these consecutive parts were cut from, if they are all of it."""
        base, end = None, 0
        for part in parts:
            cut = next((self._cuts[space] for space in part.rows if space in self._cuts), None)
            if cut is None or (base is not None and cut[0] != base) or cut[1] != end:
                return None
            base, end = cut[0], end + cut[2]
        return base if base is not None and base.length == end else None

    def choose(self, origin: RowOrigin, axis: int, total: int, rows: Tensor) -> RowOrigin:
        """These rows of so many, perhaps of rows that were chosen before; then they may be all of them in order."""
        rows = rows.cpu() % total
        for space in origin.rows:
            before = self._choices.get(space)
            if before is not None and before.axis == axis:
                origin, _, total, rows = before._replace(rows=before.rows[rows])
                break
        if torch.equal(rows, torch.arange(total)):
            return origin
        chosen = self._derive(("rows", axis, tuple(rows.tolist())), origin)._replace(length=len(rows))
        self._choices[min(chosen.rows)] = _Choice(origin, axis, total, rows)
        return chosen

    def put_back(self, values: Iterable[RowOrigin], size: int, index: Tensor) -> RowOrigin | None:
        """What rows are of that are written to so many zeros: where they were chosen, or each of its copies there."""
        spaces = {space for origin in values for space in origin.rows} & self._choices.keys()
        if len(spaces) != 1:
            return None
        choice, index, written = self._choices[min(spaces)], index.cpu() % size, torch.full((size,), -1)
        written[index] = choice.rows
        copies = max(size // choice.total, 1)
        is_whole = torch.equal(written[index], choice.rows) and size == choice.total * copies
        return choice.base if is_whole and torch.equal(written, torch.arange(size) // copies) else None
