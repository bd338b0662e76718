"""A training run as a page that plays it: the loss, and what every head did at each kept step.

The document has the steps, the losses and when heads learned something; one block has the means of every head and their
standard errors, by statistic and step. js/atlas/training-page.js reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from regard.heads.atlas.result import AtlasHead
from regard.heads.atlas.timeline import MANY, Loss, Timeline
from regard.heads.measure.registry import AVERAGED, BY_NAME
from regard.heads.probe import SCORES
from regard.heads.report.roles import PATTERN, ROLES
from regard.show.page.atlas_page import four_digits, packed_json
from regard.show.page.html import training_html
from regard.show.page.payload import describe_roles
from regard.support.drawing import as_page

_MOST = 1000  # points of the curve of the loss
_PROBE = "probe."  # before the name of a statistic that was measured on random tokens


def training_page(run: Timeline, title: str = "") -> str:
    """The page as one HTML document."""
    if not len(run):
        raise ValueError("the run has no atlases yet, so there is nothing to play; regard train --atlas-every N")
    name = title or "training run"
    blocks = {"heads": packed_json([_curves(own) for own in zip(*(one.heads() for one in run), strict=True)])}
    return training_html(f"{name} · regard", describe_run(run, name), blocks)


def describe_run(run: Timeline, name: str) -> dict[str, Any]:
    """The document: steps, losses, statistics, and the heads that learned something."""
    last = run[-1].atlas
    return {
        "format": "regard.training",
        "model": name,
        "texts": last.texts,
        "tokens": last.tokens,
        "steps": [one.step for one in run],
        "losses": [_rounded(one.loss) for one in run],
        "curve": _curve(run.losses),
        "validation": [[one.step, _rounded(one.validation)] for one in run.losses if math.isfinite(one.validation)],
        "seconds": _seconds(run),
        "statistics": _statistics(run),
        "roles": describe_roles(),
        "layers": [{"name": one.name, "heads": one.heads} for one in last.layers],
        "births": {score: [one._asdict() for one in run.births(score)] for score in ("induction", "previous")},
        "best": {score: [_name(one.best(score).head) for one in run] for score in ("induction", "previous")},
        "threshold": PATTERN,
        "many": MANY,
    }


def _statistics(run: Timeline) -> list[dict[str, Any]]:
    """Those of the probe, and those of the texts that any head has at any step."""
    probed = [
        {"name": f"{_PROBE}{one}", "label": BY_NAME[one].heading or one, "where": "probe", "statistic": one}
        for one in SCORES
    ]
    known = [one for one in AVERAGED if any(head.count(one) for moment in run for head in moment.heads())]
    texts = [
        {"name": one, "label": BY_NAME[one].heading or one, "where": "texts", "statistic": one}
        for one in sorted(known, key=lambda one: BY_NAME[one].unit != "weight")
    ]
    colors = {kind.statistic: kind.name for kind in ROLES.values() if kind.statistic}
    return [
        one
        | {
            "unit": BY_NAME[one["statistic"]].unit,
            "about": BY_NAME[one["statistic"]].about,
            "role": colors.get(one["statistic"], ""),
        }
        for one in [*probed, *texts]
    ]


def _curves(own: Sequence[AtlasHead]) -> dict[str, Any]:
    """One head at every step: its roles by number, and the mean and the standard error of each statistic."""
    names = list(ROLES)
    means: dict[str, list[float | None]] = {}
    noise: dict[str, list[float | None]] = {}
    for score in SCORES:
        means[_PROBE + score] = [_rounded(one.probe[score]) for one in own]
        noise[_PROBE + score] = [_rounded(one.probe_noise[score]) for one in own]
    for statistic in AVERAGED:
        if any(one.count(statistic) for one in own):
            pairs = [_over_texts(one, statistic) for one in own]
            means[statistic], noise[statistic] = ([_rounded(pair[i]) for pair in pairs] for i in (0, 1))
    return {"roles": [names.index(one.role.name) for one in own], "means": means, "noise": noise}


def _over_texts(head: AtlasHead, statistic: str) -> tuple[float, float]:
    """The mean over texts and its standard error, which is unknown where the texts are few."""
    mean, error = head.over_texts(statistic)
    return (head.across_texts(statistic)[0], math.nan) if math.isnan(mean) else (mean, error)


def _curve(losses: Sequence[Loss]) -> list[list[float | None]]:
    """Steps and training losses: of a long run, the means of as many steps as make it short; null where not finite."""
    size = max(1, math.ceil(len(losses) / _MOST))
    points: list[list[float | None]] = []
    for start in range(0, len(losses), size):
        block = losses[start : start + size]
        known = [one.training for one in block if math.isfinite(one.training)]
        points.append([block[-1].step, _rounded(sum(known) / len(known)) if known else None])
    return points


def _seconds(run: Timeline) -> list[float | None]:
    """When each kept step was done, counted from the start of the run."""
    times = {one.step: one.seconds for one in run.losses}
    return [_rounded(times.get(one.step, math.nan)) for one in run]


def _name(head: AtlasHead) -> str:
    return f"{head.layer}.{head.head}"


def _rounded(value: float) -> float | None:
    """Four digits; None where it is not finite."""
    return four_digits(value) if math.isfinite(value) else None


@as_page.register
def _run_as_page(run: Timeline, title: str = "") -> str:
    return training_page(run, title)
