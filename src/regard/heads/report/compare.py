"""Which heads changed between two reports: two checkpoints on one text, or one model on two texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.heads.measure.registry import BY_NAME
from regard.heads.report.listing import Listing
from regard.heads.report.roles import Role


@dataclass(frozen=True)
class HeadSummary:
    """A head in a report: its role, its means, and the number of keys, which limits entropy and distance."""

    role: Role
    means: Mapping[str, float]
    keys: int
    marks: tuple[str, ...] = ()  # what is assumed or unknown about its layer

    def value(self, by: str) -> float:
        """The mean of a statistic, NaN where there is none; or the score of the role."""
        return self.role.score if by == "score" else self.means.get(by, math.nan)

    def shares(self) -> dict[str, float]:
        """The means on one scale from 0 to 1: each divided by its largest possible value."""
        return {name: value / BY_NAME[name].most(self.keys) for name, value in self.means.items()}


@dataclass(frozen=True)
class Change:
    """What changed in one head: after − before."""

    layer: int
    head: int
    before: Role
    after: Role
    differences: Mapping[str, float]
    size: float  # the largest difference of all, on a scale from 0 to 1
    most: str  # the statistic of that difference; "" where nothing could be compared
    values: tuple[float, float]  # its mean before and after

    @property
    def role(self) -> str:
        """The role, or both where it changed."""
        before, after = self.before.name, self.after.name
        return after if before == after else f"{before} → {after}"


class Comparison(Listing[Change]):
    """The heads of two reports side by side, the largest change first.

    The size of a change is that of its largest difference: weights as they are, entropy as a share of ln S, distance
    as a share of the text, so that texts of different length can be compared.
    """

    def __init__(self, changes: Sequence[Change], of: int | None = None) -> None:
        super().__init__(sorted(changes, key=lambda change: (-change.size, change.layer, change.head)))
        self.heads = len(changes) if of is None else of  # how many were compared; changed() leaves some out

    def changed(self, threshold: float = 0.1) -> Comparison:
        """Only the heads whose role changed, or some share of which changed by the threshold or more."""
        few = [one for one in self if one.size >= threshold or one.before.name != one.after.name]
        return Comparison(few, self.heads)


def compare(before: Mapping[tuple[int, int], HeadSummary], after: Mapping[tuple[int, int], HeadSummary]) -> Comparison:
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
        sizes = {name: abs(two[name] - one[name]) for name in differences}
        most = max(sizes, key=sizes.__getitem__, default="")
        values = (old.means[most], new.means[most]) if most else (math.nan, math.nan)
        changes.append(Change(layer, head, old.role, new.role, differences, sizes.get(most, 0.0), most, values))
    return Comparison(changes)
