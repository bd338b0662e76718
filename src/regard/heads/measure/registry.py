"""The statistics of a head, each defined once. Everything else reads them here: measuring, files, tables, docs.

p are the weights of one head. Query i is at key position at = i + S − T, where keys that are not part of the text
(torch.nn.MultiheadAttention's add_bias_kv) are not counted in S. Queries that are padding, or that may attend to
nothing, do not count: their statistics are NaN and their keys −1. A statistic about a key that does not exist (no
previous token, no earlier occurrence) is NaN as well.

A new statistic that is the weight on one key per query, such as `previous`, is one entry here with a `target`. One that
is computed from each head's weights, such as `histogram`, is an entry here and a function in on_demand.BY_HEAD.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, NamedTuple

ROW, KEY = ("B", "H", "T"), ("B", "H", "S")


class Start(IntEnum):
    """Where a target is counted from. Kernels use these numbers."""

    FIRST = 0  # the first key that any query may see
    OWN = 1  # the query's own position
    EARLIER = 2  # the last earlier occurrence of the query's token


class Target(NamedTuple):
    """One key for each query: `step` keys after the start."""

    start: Start
    step: int = 0


class Join(Enum):
    """How the parts of a statistic are joined over the steps of a generation."""

    ROWS = "one after another; key numbers are counted in the whole text"
    TARGET = "one after another, 0 where the target is in the text and was not among the keys of that step"
    SUM = "added up for each key"
    MEAN = "added up for each key, divided by the queries that may see it"
    BINS = "one after another, with as many bins as the longest has"
    NEVER = "computed again from the queries and keys of all steps"


@dataclass(frozen=True)
class Statistic:
    """What a statistic is, and how it is stored, joined, compared and shown."""

    name: str
    formula: str
    unit: str
    about: str  # one sentence, the documentation of seen[layer, head].name
    axes: tuple[str, ...] = ROW  # ? is any size
    tensors: tuple[str, ...] = ()  # the names of its tensors, where they are not its own
    keys: tuple[str, ...] = ()  # those of its tensors that hold key numbers
    default: bool = False  # in the default set
    join: Join = Join.ROWS
    target: Target | None = None  # the key whose weight it is
    positional: bool = False  # compares positions of queries and keys, so it is NaN in cross-attention
    averaged: bool = False  # has a mean over the rows of a head
    most: Callable[[int], float] = lambda keys: 1.0  # its largest value for so many keys; comparisons divide by it
    limit: Callable[[int, int], float] | None = None  # its largest value for so many queries and keys, if not `most`
    heading: str | None = None  # of its column in the table of heads
    legend: str = ""  # what it is, in one short line
    compared: bool = False  # has a column in the table of a comparison

    @property
    def needs_tokens(self) -> bool:
        """Can it be measured only where token ids are known?"""
        return self.target is not None and self.target.start is Start.EARLIER

    @property
    def stored(self) -> tuple[str, ...]:
        """The names of its tensors."""
        return self.tensors or (self.name,)


def _weight_on(name: str, target: Target, formula: str, about: str, legend: str, **options: Any) -> Statistic:
    """The weight on one key of each query."""
    join = Join.ROWS if target.start is Start.EARLIER else Join.TARGET
    kind: Any = {"target": target, "join": join, "positional": target.start is Start.OWN, "averaged": True}
    return Statistic(name, formula, "weight", about, legend=legend, **kind, **options)


STATISTICS = (
    Statistic(
        "lse",
        "log Σⱼ exp(scoreᵢⱼ), over the keys that i may see",
        "nats",
        "The log of the sum of exp(score) over the visible keys.",
        default=True,
        limit=lambda queries, keys: math.inf,
    ),
    Statistic(
        "entropy",
        "−Σⱼ pᵢⱼ · ln pᵢⱼ",
        "nats: 0 is one key, ln n is uniform over n keys",
        "−Σ p ln p, in nats: 0 where all weight is on one key, ln n where it is uniform over n keys.",
        default=True,
        averaged=True,
        most=lambda keys: math.log(max(keys, 2)),
        heading="entropy",
        legend="how spread out the weights are: 0 where all weight is on one token",
        compared=True,
    ),
    Statistic(
        "distance",
        "Σⱼ pᵢⱼ · abs(at − j)",
        "tokens",
        "The mean distance from the query to the keys, weighted by p, in tokens.",
        default=True,
        positional=True,
        averaged=True,
        most=lambda keys: float(max(keys - 1, 1)),
        limit=lambda queries, keys: max(queries, keys),
        heading="distance",
        legend="how far away it looks, in tokens",
        compared=True,
    ),
    _weight_on(
        "sink",
        Target(Start.FIRST),
        "p on the first key that any query may see",
        "The weight on the first key.",
        "weight on the first token; in Python: .sink",
        default=True,
        heading="first",
        compared=True,
    ),
    _weight_on(
        "previous",
        Target(Start.OWN, -1),
        "pᵢⱼ at j = at − 1",
        "The weight on the previous token; NaN for the first, which has none.",
        "weight on the token before",
        default=True,
        heading="previous",
        compared=True,
    ),
    _weight_on(
        "self",
        Target(Start.OWN),
        "pᵢⱼ at j = at",
        "The weight on the query's own token.",
        "weight on the token itself",
        default=True,
        heading="self",
        compared=True,
    ),
    _weight_on(
        "next",
        Target(Start.OWN, +1),
        "pᵢⱼ at j = at + 1",
        "The weight on the following token; NaN for the last, which has none.",
        "weight on the token after",
        default=True,
    ),
    _weight_on(
        "induction",
        Target(Start.EARLIER, +1),
        "p on the key after the last earlier occurrence of the current token",
        "The weight on the token after the last earlier occurrence of the current one; NaN where there is none.",
        "weight on the token after the last occurrence of this one",
        heading="induction",
    ),
    _weight_on(
        "duplicate",
        Target(Start.EARLIER),
        "p on the last earlier occurrence of the current token",
        "The weight on the last earlier occurrence of the current token; NaN where there is none.",
        "weight on the last occurrence of this token",
    ),
    Statistic(
        "largest",
        "maxⱼ pᵢⱼ",
        "weight",
        "The largest weight of each query.",
        default=True,
        averaged=True,
        heading="largest",
        legend="the largest weight of each token",
    ),
    Statistic(
        "largest_key",
        "the j of that maximum; of several equal ones, any",
        "key",
        "The key that has the largest weight; one of them where several have.",
        keys=("largest_key",),
        default=True,
    ),
    Statistic(
        "received",
        "Σᵢ pᵢⱼ, over the queries that count",
        "queries",
        "The sum of the weights that each key gets from all queries.",
        axes=KEY,
        default=True,
        join=Join.SUM,
        limit=lambda queries, keys: queries,
    ),
    Statistic(
        "received_mean",
        "received ÷ the number of those queries that may see key j",
        "weight",
        "The mean weight that each key gets from the queries that may see it; NaN where none may.",
        axes=KEY,
        join=Join.MEAN,
    ),
    Statistic(
        "histogram",
        "Σⱼ pᵢⱼ over the keys at distance 0, 1, 2–3, 4–7, 8–15, …",
        "weight",
        "The weight at distance 0, 1, 2–3, 4–7, 8–15 and so on.",
        axes=(*ROW, "?"),
        join=Join.BINS,
        positional=True,
    ),
    Statistic(
        "top",
        "the n largest of pᵢ, and their keys",
        "weight, key",
        "The n largest weights of each query and their keys.",
        axes=(*ROW, "?"),
        tensors=("top_keys", "top_weights"),
        keys=("top_keys",),
    ),
    Statistic(
        "map",
        "the mean of p in each cell of an n × n grid over T × S",
        "weight",
        "The T × S weights, mean-pooled to at most n × n cells.",
        axes=("B", "H", "?", "?"),
        join=Join.NEVER,
    ),
)

BY_NAME = {one.name: one for one in STATISTICS}
NAMES = tuple(BY_NAME)
DEFAULT = tuple(one.name for one in STATISTICS if one.default)
TARGETS = {one.name: one.target for one in STATISTICS if one.target is not None}
NEED_TOKENS = frozenset(one.name for one in STATISTICS if one.needs_tokens)
AVERAGED = tuple(one.name for one in STATISTICS if one.averaged)
ROWS = tuple(one.name for one in STATISTICS if one.axes == ROW)
COLUMNS = tuple(one.name for one in STATISTICS if one.axes == KEY)
STORED = {tensor: one for one in STATISTICS for tensor in one.stored}  # the statistic that each tensor belongs to


def check_collected(names: frozenset[str]) -> None:
    """Refuse names that are no statistics; "default" stands for the default set."""
    if unknown := sorted(map(repr, names - {*NAMES, "default"})):
        raise ValueError(f"collect names {', '.join(unknown)}; known are {', '.join(NAMES)}, and default for the usual")


def with_headings(means: Mapping[str, float]) -> dict[str, float]:
    """Means as tables name them, without those that no row has.

    >>> with_headings({"sink": 0.25, "next": 0.5, "self": math.nan})
    {'first': 0.25, 'next': 0.5}
    """
    return {BY_NAME[name].heading or name: mean for name, mean in means.items() if not math.isnan(mean)}


def explain_headings(headings: Collection[str]) -> list[str]:
    """Those of these headings that are not the name of their statistic, and what they are.

    >>> explain_headings(["entropy", "first"])
    ['first: weight on the first token; in Python: .sink']
    """
    return [f"{one.heading}: {one.legend}" for one in STATISTICS if one.heading in headings and one.heading != one.name]
