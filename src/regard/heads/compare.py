"""Which heads changed between two reports: two checkpoints on one text, or one model on two texts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from regard.heads.roles import Role
from regard.show.table import Signed, html_table, text_table

_FEW = 24
_COLUMNS = ("entropy", "distance", "sink", "previous", "self")


@dataclass(frozen=True)
class Portrait:
    """A head as a report tells of it: its role and its means, and how large entropy and distance could be."""

    role: Role
    means: Mapping[str, float]
    keys: int

    def shares(self) -> dict[str, float]:
        """The means on one scale from 0 to 1: entropy against ln S, distance against S − 1, weights as they are."""
        most = {"entropy": math.log(max(self.keys, 2)), "distance": float(max(self.keys - 1, 1))}
        return {name: value / most.get(name, 1.0) for name, value in self.means.items()}


@dataclass(frozen=True)
class Change:
    """What changed in one head: after − before."""

    layer: int
    head: int
    before: Role
    after: Role
    differences: Mapping[str, float]
    size: float  # the largest difference of all, on a scale from 0 to 1

    @property
    def role(self) -> str:
        """The role, or both where it changed."""
        before, after = self.before.name, self.after.name
        return after if before == after else f"{before} → {after}"


class Comparison(Sequence[Change]):
    """The heads of two reports side by side, the most changed first.

    The size of a change is that of its largest difference: weights as they are, entropy as a share of ln S, distance
    as a share of the text, so that texts of different length can be compared.
    """

    def __init__(self, changes: Sequence[Change], of: int | None = None) -> None:
        self._changes = sorted(changes, key=lambda change: (-change.size, change.layer, change.head))
        self._of = len(changes) if of is None else of

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self._changes)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._changes[index]

    def changed(self, threshold: float = 0.1) -> Comparison:
        """Only the heads whose role changed, or some share of which changed by the threshold or more."""
        few = [c for c in self._changes if c.size >= threshold or c.before.name != c.after.name]
        return Comparison(few, self._of)

    def table(self, width: int = 80, all: bool = False) -> str:
        """The changes as aligned text."""
        if not self._changes:
            return f"  none of {self._of} heads changed"
        heading = f"  {len(self)} of {self._of} heads; after − before, the most changed first"
        shown = self._changes if all else self._changes[:_FEW]
        lines = [heading, "", text_table(*self._cells(shown), width)]
        if len(shown) < len(self):
            lines.append(f"  … and {len(self) - len(shown)} more: .table(all=True), or fewer: .changed(0.2)")
        return "\n".join(lines)

    def _cells(self, changes: Sequence[Change]) -> tuple[list[str], list[list[str | float]]]:
        rows: list[list[str | float]] = [
            [
                f"{c.layer}.{c.head}",
                c.role,
                c.size,
                *(Signed(c.differences.get(name, math.nan)) for name in _COLUMNS),
            ]
            for c in changes
        ]
        return ["head", "role", "change", *_COLUMNS], rows

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        more = len(self) - _FEW
        last = f"… and {more} more: .table(all=True), or fewer: .changed(0.2)" if more > 0 else ""
        heading = f"{len(self)} of {self._of} heads, after − before"
        return html_table(heading, *self._cells(self._changes[:_FEW]), last)


def compare(before: Mapping[tuple[int, int], Portrait], after: Mapping[tuple[int, int], Portrait]) -> Comparison:
    """Compare the heads of two reports, which must have the same ones."""
    if before.keys() != after.keys():
        layers = [len({layer for layer, _ in side}) for side in (before, after)]
        raise ValueError(
            f"only reports of the same heads can be compared; these have {layers[0]} layers with {len(before)} heads "
            f"and {layers[1]} layers with {len(after)}; watch the same architecture twice"
        )
    changes = []
    for (layer, head), old in before.items():
        new = after[layer, head]
        differences = {name: new.means[name] - old.means[name] for name in old.means if name in new.means}
        differences = {name: value for name, value in differences.items() if not math.isnan(value)}
        one, two = old.shares(), new.shares()
        size = max((abs(two[name] - one[name]) for name in differences), default=0.0)
        changes.append(Change(layer, head, old.role, new.role, differences, size))
    return Comparison(changes)
