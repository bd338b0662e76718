"""A run in time: the atlas of a model at many steps of its training, with the loss of each.

A head is born at the first kept step from which on, up to the last one, its score of the probe exceeds the threshold of
roles by more than MANY standard errors: what it does on repeated random tokens, and what it goes on doing. Where the
noise of the probe is unknown, because the atlases are of an earlier regard, the threshold alone decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from regard.heads.atlas.result import Atlas, AtlasHead, load_atlas
from regard.heads.report.listings import Listing
from regard.heads.report.roles import PATTERN
from regard.support.drawing import as_page
from regard.support.files import atomically

MANY = 2.0  # standard errors by which a score exceeds its threshold


class Best(NamedTuple):
    """The head with the largest score of the probe."""

    head: AtlasHead
    score: float


class Birth(NamedTuple):
    """A head, and the first of the kept steps from which on it does its job. first: is that the first kept step?"""

    layer: int
    head: int
    step: int
    first: bool


class Loss(NamedTuple):
    """A line of the log of a run: the loss of a step, that of the validation data where it was computed, and when."""

    step: int
    training: float
    validation: float = math.nan
    seconds: float = math.nan


@dataclass(frozen=True)
class Moment:
    """The atlas of one step, and its loss; NaN where the log does not say."""

    step: int
    loss: float
    atlas: Atlas

    def heads(self) -> list[AtlasHead]:
        """All of them, layer by layer."""
        return [one for layer in self.atlas for one in layer]

    def best(self, score: str) -> Best:
        """The head with the largest score of the probe: "induction", "previous" or "duplicate"."""
        found = max(self.heads(), key=lambda one: one.probe[score])
        return Best(found, found.probe[score])


class Timeline(Listing[Moment]):
    """The moments of a run, by step, and its losses; prints as a table, and is a page that plays the training."""

    def __init__(self, moments: Sequence[Moment], losses: Iterable[Loss] = ()) -> None:
        super().__init__(sorted(moments, key=lambda one: one.step))
        self.losses = sorted(losses)
        for before, after in zip(self._items, self._items[1:], strict=False):
            if before.step == after.step:
                raise ValueError(f"two atlases are of step {after.step}; keep one of them")
            if [one.heads for one in before.atlas.layers] != [one.heads for one in after.atlas.layers]:
                raise ValueError(f"the atlases of steps {before.step} and {after.step} are of models of other sizes")

    def births(self, score: str = "induction") -> list[Birth]:
        """Every head that came to have this score of the probe and kept it, the earliest first; the module says how."""
        found = []
        for own in zip(*(one.heads() for one in self._items), strict=True):
            since = len(own)
            while since and _does(own[since - 1], score):
                since -= 1
            if since < len(own):
                found.append(Birth(own[0].layer, own[0].head, self._items[since].step, since == 0))
        return sorted(found, key=lambda one: (one.step, one.layer, one.head))

    def to_html(self, path: str | Path, title: str = "") -> None:
        """Write the run as a page: one HTML file that plays the training, and opens offline."""
        page = as_page(self, title)
        with atomically(path) as temporary:
            temporary.write_text(page, encoding="utf-8")


def _does(head: AtlasHead, score: str) -> bool:
    """Does its score exceed the threshold by more than its noise?"""
    noise = head.probe_noise[score]
    return head.probe[score] - (0.0 if math.isnan(noise) else MANY * noise) > PATTERN


def read_timeline(files: Sequence[Path], log: Sequence[Mapping[str, Any]]) -> Timeline:
    """The atlases of a run that these files hold. log: a mapping for each step, with its "step" and "loss"."""
    losses = [
        Loss(one["step"], one["loss"], one.get("val_loss", math.nan), one.get("time", math.nan))
        for one in log
        if "loss" in one
    ]
    by_step = {one.step: one.training for one in losses}
    moments = []
    for path in files:
        try:
            atlas = load_atlas(path)
        except ValueError as error:
            raise ValueError(f"{error}; or remove that file, and the other steps are shown") from None
        step = atlas.extra.get("step")
        if isinstance(step, bool) or not isinstance(step, int) or step < 0 or not atlas.tokens:
            raise ValueError(f"{path} is no atlas of a training run; regard train --atlas-every N writes those")
        if any(layer.probed is None for layer in atlas.layers):
            raise ValueError(f"{path} has no scores of the probe; regard train --atlas-every N writes those")
        moments.append(Moment(step, by_step.get(step, math.nan), atlas))
    return Timeline(moments, losses)
