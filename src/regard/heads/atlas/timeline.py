"""A run in time: the atlas of a model at many steps of its training, with the loss of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from regard.heads.atlas.result import Atlas, AtlasHead, load_atlas
from regard.heads.report.listings import Listing
from regard.heads.report.roles import PATTERN


class Best(NamedTuple):
    """The head with the largest score of the probe."""

    head: AtlasHead
    score: float


@dataclass(frozen=True)
class Moment:
    """The atlas of one step, and its loss; NaN where the log does not say."""

    step: int
    loss: float
    atlas: Atlas

    def best(self, score: str) -> Best:
        """The head with the largest score of the probe: "induction", "previous" or "duplicate"."""
        heads = [one for layer in self.atlas for one in layer]
        found = max(heads, key=lambda one: one.probe[score])
        return Best(found, found.probe[score])


class Timeline(Listing[Moment]):
    """The moments of a run, by step; prints as a table."""

    def __init__(self, moments: Sequence[Moment]) -> None:
        super().__init__(sorted(moments, key=lambda one: one.step))

    def appears(self, score: str) -> Moment | None:
        """The first moment from which on some head has this score at every step, by the threshold of roles."""
        found = None
        for moment in reversed(self._items):
            if moment.best(score).score < PATTERN:
                break
            found = moment
        return found


def read_timeline(files: Sequence[Path], losses: Mapping[int, float]) -> Timeline:
    """The atlases of a run that these files hold. losses: by step."""
    moments = []
    for path in files:
        atlas = load_atlas(path)
        step = atlas.extra.get("step")
        if isinstance(step, bool) or not isinstance(step, int) or step < 0 or not atlas.tokens:
            raise ValueError(f"{path} is no atlas of a training run; regard train --atlas-every N writes those")
        if any(layer.probed is None for layer in atlas.layers):
            raise ValueError(f"{path} has no scores of the probe; regard train --atlas-every N writes those")
        moments.append(Moment(step, losses.get(step, math.nan), atlas))
    return Timeline(moments)
