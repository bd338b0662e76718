"""What two atlases say differently: heads are matched, and what changed beyond its noise is ranked.

The noise of a mean is how much it differs between texts: the standard error of the mean over texts, of both atlases
together. A change counts as far as it exceeds MANY of these, on the scale of its statistic, so that of hundreds of
heads and statistics none is named by chance. Texts cut from one book are alike: over other books noise is larger.

A head is compared with the one in its place, unless others have far more similar profiles: a model may have been
trained again, or its heads reordered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from regard.heads.atlas.examples import GROUPS, ExampleRow
from regard.heads.atlas.result import LEAST_TEXTS, Atlas, AtlasHead
from regard.heads.measure.registry import AVERAGED, BY_NAME
from regard.heads.report.listings import Listing
from regard.heads.report.roles import ROLES

MANY = 4.0  # standard errors that a change must exceed
STAYS = 0.25  # the distance of two profiles in the same place counts this much: a partner must be far more alike


class Disagreement(NamedTuple):
    """One row of the corpus in both atlases. share: how much of its weight lies on other keys, of the largest ones."""

    before: ExampleRow
    after: ExampleRow
    share: float


@dataclass(frozen=True)
class HeadChange:
    """Two heads that were matched, and their largest change beyond noise.

    values, noise: the means of the statistic in both, and the standard error of their difference. beyond: by how much
    the difference exceeds MANY of those, on the scale of the statistic from 0 to 1; 0 where it does not.
    """

    before: AtlasHead
    after: AtlasHead
    statistic: str
    values: tuple[float, float]
    noise: float
    beyond: float

    @property
    def moved(self) -> bool:
        """Is it in another place?"""
        return (self.before.layer, self.before.head) != (self.after.layer, self.after.head)

    @property
    def role(self) -> str:
        """The role, or both where it changed."""
        before, after = self.before.role.name, self.after.role.name
        return after if before == after else f"{before} → {after}"

    def disagreements(self) -> list[Disagreement]:
        """Rows that are examples of both heads, those with the most weight on other keys first."""
        rows, others = (_rows(one) for one in (self.before, self.after))
        both = [(rows[key], others[key]) for key in rows if key in others]
        found = [Disagreement(one, two, _other_share(one, two)) for one, two in both]
        return sorted(found, key=lambda one: (-one.share, one.before.text, one.before.token))


class AtlasDifference(Listing[HeadChange]):
    """The heads of two atlases, the largest change beyond noise first; prints as a table.

    alone: heads of either that have no partner, where the models have different numbers of heads.
    """

    def __init__(self, changes: Sequence[HeadChange], alone: tuple[int, int]) -> None:
        order = sorted(changes, key=lambda one: (-one.beyond, not one.moved, one.before.layer, one.before.head))
        super().__init__(order)
        self.alone = alone

    def changed(self) -> list[HeadChange]:
        """Those that changed beyond noise, or that moved."""
        return [one for one in self if one.beyond > 0 or one.moved]


def difference(one: Atlas, other: Atlas) -> AtlasDifference:
    """Match the heads of two atlases and rank what changed beyond its noise.

    >>> import regard
    >>> texts = [f"The cat {verb} on the mat." for verb in "sat lay slept stood sang danced ate sighed".split()]
    >>> atlas = regard.atlas(regard.GPT.from_pretrained("tiny"), texts)
    >>> len(difference(atlas, atlas)), difference(atlas, atlas).changed()
    (48, [])
    """
    for atlas in (one, other):
        if atlas.texts < LEAST_TEXTS:
            raise ValueError(
                f"the noise of an atlas is how much its texts differ, and {atlas.model or 'one'} has {atlas.texts} "
                f"texts; read at least {LEAST_TEXTS}, by a longer corpus or a smaller --length"
            )
    mine, theirs = (_heads(atlas) for atlas in (one, other))
    pairs = _matched(mine, theirs)
    changes = [_change(mine[i], theirs[j]) for i, j in pairs]
    return AtlasDifference(changes, (len(mine) - len(pairs), len(theirs) - len(pairs)))


def _heads(atlas: Atlas) -> list[AtlasHead]:
    return [one for layer in atlas for one in layer]


def _matched(mine: Sequence[AtlasHead], theirs: Sequence[AtlasHead]) -> list[tuple[int, int]]:
    """Pairs of heads, by their numbers: the two that are most alike first, each head once."""
    distances = np.abs(_profiles(mine)[:, None] - _profiles(theirs)[None]).mean(-1)
    places = {(head.layer, head.head): number for number, head in enumerate(theirs)}
    stays = {i: places[head.layer, head.head] for i, head in enumerate(mine) if (head.layer, head.head) in places}
    order = distances.copy()
    for i, j in stays.items():
        order[i, j] = STAYS * distances[i, j] - 1e-9  # of two that are alike, the one in its place
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for place in order.argsort(axis=None, kind="stable").tolist():
        i, j = divmod(place, len(theirs))
        if i not in pairs and j not in taken:
            pairs[i] = j
            taken.add(j)
    return sorted(_settled(pairs, stays, distances).items())


def _settled(pairs: dict[int, int], stays: dict[int, int], distances: np.ndarray) -> dict[int, int]:
    """The pairs; heads that only changed places among themselves stay, unless all of them together gain by it."""
    owners = {j: i for i, j in stays.items()}
    result = dict(pairs)
    for start in sorted(pairs):
        ring = [start]
        while (after := owners.get(pairs[ring[-1]])) in pairs and after not in ring:
            ring.append(after)
        moved = sum(distances[i, pairs[i]] for i in ring)
        if (
            after == start
            and all(i in stays for i in ring)
            and moved > STAYS * sum(distances[i, stays[i]] for i in ring)
        ):
            result |= {i: stays[i] for i in ring}
    return result


def _profiles(heads: Sequence[AtlasHead]) -> np.ndarray:
    """(heads, numbers): the means on one scale from 0 to 1, and the share of rows that do each job."""
    rows = []
    for head in heads:
        shares, jobs = head.atlas.portraits()[head.layer, head.head].shares(), head.jobs
        rows.append([shares.get(name, math.nan) for name in AVERAGED] + [jobs.get(name, 0.0) for name in ROLES])
    return np.asarray(np.nan_to_num(np.array(rows)))


def _change(before: AtlasHead, after: AtlasHead) -> HeadChange:
    """Their largest change beyond noise; where there is none, the largest in standard errors."""
    found = [HeadChange(before, after, "", (math.nan, math.nan), math.nan, 0.0)]
    for name in AVERAGED:
        (one, error), (two, other_error) = (head.over_texts(name) for head in (before, after))
        noise = math.hypot(error, other_error)
        if not math.isnan(noise):
            keys = max(head.atlas.portraits()[head.layer, head.head].keys for head in (before, after))
            beyond = (abs(two - one) - MANY * noise) / BY_NAME[name].most(keys)
            # Differences in the last bits of a mean are of the arithmetic: other batches, another machine.
            found.append(HeadChange(before, after, name, (one, two), noise, beyond if beyond > 1e-6 else 0.0))
    return max(found, key=lambda change: (change.beyond, _errors(change)))


def _errors(change: HeadChange) -> float:
    """The change in standard errors; −1 where there is none."""
    one, two = change.values
    return abs(two - one) / change.noise if change.noise > 0 else -1.0


def _rows(head: AtlasHead) -> dict[tuple[int, int], ExampleRow]:
    """The examples of a head, by text and position."""
    samples = head.atlas.layers[head.layer].samples
    return {(one.text, one.token): one for group in range(GROUPS) for one in samples.of(head.head, group)}


def _other_share(one: ExampleRow, other: ExampleRow) -> float:
    """Half the sum of the differences of the weights that are known: 0 where they agree, 1 where all are on others."""
    mine, theirs = (dict(zip(row.keys, row.weights, strict=True)) for row in (one, other))
    return sum(abs(mine.get(key, 0.0) - theirs.get(key, 0.0)) for key in mine.keys() | theirs.keys()) / 2
