"""What an atlas adds up for the heads of one layer: sums, counts in bins, jobs. Two of them add to one.

Everything is a sum over rows, in float64 or in whole numbers, so the order and the split of a corpus change nothing
beyond the last bits of the first, and nothing at all in the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.heads.atlas.cells import CELLS, CLASSES, RowTokens
from regard.heads.atlas.examples import Samples
from regard.heads.atlas.jobs import counts_of, job_numbers
from regard.heads.atlas.sketch import BINS, bins_of
from regard.heads.measure.registry import AVERAGED
from regard.heads.report.record import Record
from regard.heads.report.roles import ENOUGH, ROLES, Tally, add_largest, uniform_values

COUNT, SUM, SQUARES = range(3)  # of the last axis of moments


@dataclass(frozen=True)
class Sums:
    """The sums of a layer of H heads. K statistics, in the order of AVERAGED; roles in the order of ROLES.

    rows: (H, K, cells, 3) float64: count, sum and sum of squares over the rows of each class and of each position.
    even: (H, K, 2) float64: over the same rows, the sum of 1 / visible keys and that of uniform attention.
    bins: (H, K, 256): how many rows have a value in each bin of the sketch.
    texts: (H, K, 3) float64: count, sum and sum of squares of the means of single texts.
    jobs, text_jobs: (H, roles): rows, and texts, by role. steps, places: see Tally.
    """

    rows: Tensor
    even: Tensor
    bins: Tensor
    texts: Tensor
    jobs: Tensor
    text_jobs: Tensor
    steps: Tensor
    places: Tensor

    @classmethod
    def zeros(cls, heads: int, device: torch.device | str = "cpu") -> Sums:
        """Of nothing."""
        K, R = len(AVERAGED), len(ROLES)
        sizes = {"rows": (K, CELLS, 3), "even": (K, 2), "texts": (K, 3)}
        sizes |= {"bins": (K, BINS), "jobs": (R,), "text_jobs": (R,), "steps": (1,), "places": (1,)}
        kinds = {name: torch.float64 if name in ("rows", "even", "texts") else torch.long for name in sizes}
        return cls(
            **{name: torch.zeros(heads, *size, dtype=kinds[name], device=device) for name, size in sizes.items()}
        )

    @property
    def reach(self) -> int:
        """The most queries or keys of a text."""
        return self.places.shape[1] - 1

    def reaching(self, reach: int) -> Sums:
        """The same, with room for longer texts."""
        more = max(reach - self.reach, 0)
        pad = torch.nn.functional.pad
        tensors = vars(self) | {"steps": pad(self.steps, (more, more)), "places": pad(self.places, (0, more))}
        return Sums(**tensors) if more else self

    def __add__(self, other: Sums) -> Sums:
        reach = max(self.reach, other.reach)
        one, two = self.reaching(reach), other.reaching(reach)
        return Sums(**{field.name: getattr(one, field.name) + getattr(two, field.name) for field in fields(Sums)})

    @staticmethod
    def joined(parts: Sequence[Sums]) -> Sums:
        """Those of the heads of all parts, one part after the other."""
        reach = max(part.reach for part in parts)
        each = [part.reaching(reach) for part in parts]
        return Sums(**{field.name: torch.cat([getattr(one, field.name) for one in each]) for field in fields(Sums)})

    def of(self, heads: slice) -> Sums:
        """Those of some heads."""
        return Sums(**{name: tensor[heads] for name, tensor in vars(self).items()})

    def to(self, device: torch.device | str) -> Sums:
        """A copy on this device."""
        return Sums(**{name: tensor.to(device, copy=True) for name, tensor in vars(self).items()})

    def moments(self) -> Tensor:
        """(H, K, 3): count, sum and sum of squares over all rows."""
        return self.rows[:, :, len(CLASSES) :].sum(2)

    def tally(self) -> Tally:
        """The means and roles of the heads."""
        moments = self.moments()
        each = torch.cat([moments[..., [SUM, COUNT]], self.even], -1).permute(1, 2, 0)  # (K, 4, H)
        sums = {name: one for name, one in zip(AVERAGED, each, strict=True) if bool((one[1] > 0).any())}
        return Tally(sums, self.steps, self.places)


@dataclass(frozen=True)
class LayerAtlas:
    """One layer: its module, what was added up, and examples."""

    name: str
    sums: Sums
    samples: Samples
    marks: tuple[str, ...] = ()  # what is assumed about it, or unknown
    probed: Tensor | None = None  # (H, 3) float64: the scores of regard.probe
    probe_noise: Tensor | None = None  # (H, 3) float64: their standard errors over texts
    costs: Tensor | None = None  # (H, 2) float64: what its absence costs, and the standard error of that

    @property
    def heads(self) -> int:
        """How many heads it has."""
        return len(self.sums.jobs)

    def __add__(self, other: LayerAtlas) -> LayerAtlas:
        beside = {name: getattr(self, name) for name in ("probed", "probe_noise", "costs")}
        beside = {name: getattr(other, name) if one is None else one for name, one in beside.items()}
        marks = tuple(dict.fromkeys((*self.marks, *other.marks)))
        sums, samples = self.sums + other.sums, self.samples + other.samples
        return replace(self, sums=sums, samples=samples, marks=marks, **beside)


def sums_of(records: Sequence[Record], tokens: RowTokens) -> Sums:
    """The sums of the heads of some layers of one forward, which read these tokens and have the same statistics."""
    B, _, T, S = records[0].sizes
    known = [name for name in AVERAGED if records[0].has(name)]
    device = records[0].steps[0].call.device
    sums = Sums.zeros(sum(record.sizes[1] for record in records), device).reaching(max(T, S))
    if not B * T:
        return sums
    values = torch.cat([_values(record, known) for record in records], 1)  # (B, H, K, T)
    seen = [record.visible() for record in records]
    visible, distance = (torch.cat(parts, 1).double() for parts in zip(*seen, strict=True))
    _refuse_nan(records, visible, values[:, :, AVERAGED.index("largest")])
    rows = values.double()
    valid = ~rows.isnan()
    chance, uniform = 1 / visible, uniform_values(visible, distance)
    each = {name: rows[:, :, k] for k, name in enumerate(AVERAGED) if name in known}
    rows = torch.where(valid, rows, 0.0)

    parts = torch.stack([valid.double(), rows, rows * rows], 1)  # (B, 3, H, K, T)
    cells = torch.bmm(parts.flatten(1, 3), tokens.cells)  # (B, 3 · H · K, cells)
    moments = cells.sum(0).unflatten(0, (3, *rows.shape[1:3])).permute(1, 2, 3, 0)
    sums.rows[:, :, : moments.shape[2]] += moments
    by_text = parts.sum(-1)  # (B, 3, H, K)
    for k, name in enumerate(AVERAGED):
        even = uniform.get(name)
        by_chance = torch.where(valid[:, :, k], chance, 0.0).sum(-1)  # (B, H)
        by_uniform = by_text[:, SUM, :, k] if even is None else torch.where(valid[:, :, k], even, 0.0).sum(-1)
        sums.even[:, k] += torch.stack([by_chance, by_uniform], -1).sum(0)
    _add_bins(sums, values, valid)
    several = visible > 1  # a row with one key to see has no choice
    numbers = job_numbers(
        {name: one.masked_fill(~several, torch.nan) for name, one in each.items()},
        dict.fromkeys(each, chance),
        uniform,
    )
    sums.jobs.add_(counts_of(numbers))
    _add_texts(sums, by_text, valid, chance, uniform)
    first = 0
    for record in records:
        own = slice(first, first + record.sizes[1])
        add_largest(record, sums.steps[own], sums.places[own])
        first = own.stop
    return sums


def _values(record: Record, known: Sequence[str]) -> Tensor:
    """(B, H, K, T): the statistics in the order of AVERAGED; NaN where one is not known."""
    absent = record.read(known[0]).new_full((), torch.nan)
    B, H, T, _ = record.sizes
    return torch.stack([record.read(name) if name in known else absent.expand(B, H, T) for name in AVERAGED], 2)


def _add_bins(sums: Sums, values: Tensor, valid: Tensor) -> None:
    """Count the values in the bins of the sketch."""
    _, H, K, _ = values.shape
    bins = torch.stack([bins_of(name, values[:, :, k]) for k, name in enumerate(AVERAGED)], 2)
    place = torch.arange(H * K, device=bins.device).reshape(H, K, 1) * (BINS + 1) + bins.masked_fill(~valid, BINS)
    counts = torch.bincount(place.flatten(), minlength=H * K * (BINS + 1)).reshape(H, K, BINS + 1)
    sums.bins.add_(counts[..., :BINS])


def _add_texts(sums: Sums, by_text: Tensor, valid: Tensor, chance: Tensor, uniform: dict[str, Tensor]) -> None:
    """Add the means of each text, of at least as many rows as a role needs, and the job that the text shows."""
    count = by_text[:, COUNT]  # (B, H, K)
    means = torch.where(count >= ENOUGH, by_text[:, SUM] / count, torch.nan)
    enough = (count >= ENOUGH).double()
    known = means.nan_to_num(0.0)
    sums.texts.add_(torch.stack([enough, known, known * known], -1).sum(0))

    def mean_of(even: Tensor, k: int) -> Tensor:
        return torch.where(valid[:, :, k], even, 0.0).sum(-1) / count[..., k]

    each = {name: means[..., k] for k, name in enumerate(AVERAGED)}
    by_chance = {name: mean_of(chance, k) for k, name in enumerate(AVERAGED)}
    even = {name: mean_of(one, AVERAGED.index(name)) for name, one in uniform.items()}
    sums.text_jobs.add_(counts_of(job_numbers(each, by_chance, even)))


def _refuse_nan(records: Sequence[Record], visible: Tensor, largest: Tensor) -> None:
    """Rows that see a key and have no weights are of a model that computes NaN; leaving them out would hide that."""
    lost = ~visible.isnan() & largest.isnan()
    if not bool(lost.any()):
        return
    for record, own in zip(records, lost.split([record.sizes[1] for record in records], 1), strict=True):
        attention = record.call(0).attention
        numbers = (attention.q, attention.k) if isinstance(attention, QK) else (attention.weights,)
        if not bool(own.any()) or all(bool(one.isfinite().all()) for one in numbers):
            continue  # all weights of a row may be 0
        text, head, row = (int(one) for one in own.nonzero()[0])
        raise ValueError(
            f"the weights of {record.name or 'the model'} are NaN, in head {head} at token {row} of text {text} of "
            "this batch; check the model's weights, its dtype and the padding"
        )
