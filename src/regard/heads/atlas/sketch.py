"""Quantiles of a statistic from counts in fixed bins, which add exactly.

Weights have 256 equal bins from 0 to 1: a quantile is within 1/512 of the exact one. Entropies and distances have one
bin below 0.001 and 255 logarithmic ones from there to 2²⁰: a quantile is within 4.2% of the exact one, or, below 0.001,
it is 0. Values beyond an end are counted in its bin.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.heads.measure.registry import BY_NAME

BINS = 256
LEAST, LARGEST = 1e-3, float(1 << 20)
_STEP = math.log(LARGEST / LEAST) / (BINS - 1)
WEIGHT_ERROR = 0.5 / BINS  # absolute
RELATIVE_ERROR = math.exp(_STEP / 2) - 1  # of entropy and distance


def is_weight(name: str) -> bool:
    """Is the statistic a weight, between 0 and 1?"""
    return BY_NAME[name].unit == "weight"


def bins_of(name: str, values: Tensor) -> Tensor:
    """The bin of each value; what NaN becomes is undefined.

    >>> bins_of("sink", torch.tensor([0.0, 0.5, 1.0])), bins_of("entropy", torch.tensor([0.0, 1.0]))
    (tensor([  0, 128, 255]), tensor([ 0, 85]))
    """
    places = values * BINS if is_weight(name) else 1 + (values.clamp(min=LEAST / 2) / LEAST).log() / _STEP
    return places.nan_to_num(0.0).clamp(0, BINS - 1).long()


def middles(name: str) -> Tensor:
    """(256,): the value that stands for each bin."""
    places = torch.arange(BINS, dtype=torch.float64)
    if is_weight(name):
        return (places + 0.5) / BINS
    return torch.where(places > 0, LEAST * ((places - 0.5) * _STEP).exp(), 0.0)


def quantile(name: str, counts: Tensor, share: float) -> float:
    """The value that this share of all values does not exceed, (256,) counts; NaN where there are none.

    >>> counts = torch.zeros(256, dtype=torch.long)
    >>> counts[128] = 3
    >>> quantile("sink", counts, 0.5)
    0.501953125
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a quantile is for a share between 0 and 1, such as 0.5 for the median; this is {share}")
    total = int(counts.sum())
    if not total:
        return math.nan
    rank = max(1, math.ceil(share * total))
    place = int(torch.searchsorted(counts.cumsum(0), torch.tensor(rank)))
    return float(middles(name)[place])
