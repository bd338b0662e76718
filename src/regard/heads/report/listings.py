"""What a report lists: chosen heads, heads that changed between two reports, one token in every head."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeVar, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.heads.measure.registry import BY_NAME
from regard.heads.report.roles import Role
from regard.heads.report.views import Head, SeenLayer
from regard.support.drawing import as_figure, as_html, as_text

Item = TypeVar("Item")


class ShownAsTable:
    """An object that prints as a table, which regard.show draws."""

    def table(self, width: int = 80, all: bool = False, **options: Any) -> str:
        """The table as aligned text; all=True shows every line."""
        return as_text(self, width, all=all, **options)

    def __repr__(self) -> str:
        return as_text(self, 80)

    def _repr_html_(self) -> str:
        return as_html(self)


class Listing(ShownAsTable, Sequence[Item]):
    """Heads, changes of heads, or one token in every head, in order."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = list(items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]


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


class HeadList(Listing[Head]):
    """Heads in order; prints as a table.

    `summaries` has the role and the means of each, in the same order.
    """

    def __init__(self, heads: Sequence[Head], summaries: Sequence[HeadSummary], what: str) -> None:
        super().__init__(heads)
        self.summaries, self.what = list(summaries), what

    @overload
    def __getitem__(self, index: int) -> Head: ...
    @overload
    def __getitem__(self, index: slice) -> HeadList: ...
    def __getitem__(self, index: int | slice) -> Head | HeadList:
        if isinstance(index, slice):
            return HeadList(self._items[index], self.summaries[index], self.what)
        return self._items[index]


def sort_heads(
    keys: Sequence[tuple[int, int]], portraits: Mapping[tuple[int, int], HeadSummary], by: str, descending: bool
) -> list[tuple[int, int]]:
    """(layer, head), sorted by the mean of a statistic; those that have none come last."""
    values = {key: portraits[key].value(by) for key in keys}
    known = [key for key in keys if not math.isnan(values[key])]
    if keys and not known:
        raise ValueError(
            f'"{by}" has no value in these heads, so they cannot be sorted by it; '
            "it was not collected, or no row has one"
        )
    known.sort(key=values.__getitem__, reverse=descending)
    return known + [key for key in keys if math.isnan(values[key])]


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


class TokenInHead(NamedTuple):
    """What one head does with the token.

    weights: (S,), where the token looks. received: (T,), how much each query looks at it; NaN in cross-attention, where
    it is not among the keys. telling: the largest weight on any token but the first, which many heads look at anyway.
    """

    head: Head
    weights: Tensor
    received: Tensor
    telling: float


class TokenInHeads(Listing[TokenInHead]):
    """One token in every head, the most telling head first; prints as a table. `seen.at("sat")` makes it.

    >>> import regard
    >>> layer = regard.MultiHeadAttention(d_in=8, d_out=8, context_length=16, dropout=0.0, num_heads=2)
    >>> with regard.watch(layer, tokens=["The", "cat", "sat"]) as seen:
    ...     out = layer(torch.randn(1, 3, 8))
    >>> sat = seen.at("sat")
    >>> sat.position, sat.weights.shape
    (2, torch.Size([1, 2, 3]))
    """

    def __init__(self, layers: Sequence[SeenLayer], row: int, text: int) -> None:
        self.position, self.text = row, text
        self._layers = [_of_layer(layer, row, text) for layer in layers]
        super().__init__(sorted(chain(*self._layers), key=lambda one: -one.telling))

    @property
    def name(self) -> str:
        """The token's label, or its position where the tokens are unknown."""
        texts = self[0].head.query_tokens
        return f"token {self.position}" if texts is None else texts[self.text].labels[self.position]

    @property
    def weights(self) -> Float[Tensor, "L H S"]:
        """Where the token looks, in every head of every layer."""
        return self._stacked("weights", "keys")

    @property
    def received(self) -> Float[Tensor, "L H T"]:
        """How much each query looks at the token, in every head of every layer."""
        return self._stacked("received", "queries")

    def plot(self, ax: Any = None, width: float | None = None) -> Any:
        """Where the token looks in the 16 heads that say most about it, as a heat map; returns its matplotlib Axes."""
        return as_figure(self, ax=ax, width=width)

    def _stacked(self, name: str, what: str) -> Tensor:
        layers = [torch.stack([getattr(one, name) for one in heads]) for heads in self._layers]
        if len({layer.shape for layer in layers}) > 1:
            sizes = ", ".join(
                f"{heads[0].head.layer}: {len(heads)} × {len(getattr(heads[0], name))}" for heads in self._layers
            )
            raise ValueError(
                f"{name} of layers with different sizes ({sizes}: heads × {what}) is no one tensor; choose a layer: "
                f"seen.at({self.position}, layers=0).{name}"
            )
        return torch.stack(layers)


def _of_layer(layer: SeenLayer, row: int, text: int) -> list[TokenInHead]:
    record = layer.record
    weights = layer.weights(rows=row, text=text)[0, :, 0]  # (H, S)
    if not record.has_positions:
        received = torch.full((len(layer), record.sizes[2]), torch.nan)
    else:
        received = layer.weights(cols=int(record.positions()[row]), text=text)[0, :, :, 0]
    keys = layer.key_tokens
    padding: Sequence[bool] = keys[text].padding if keys is not None else ()
    others = weights.clone()
    others[:, next((i for i, padded in enumerate(padding) if not padded), 0)] = 0  # the first key of the text
    telling = others.amax(-1).tolist()
    return [TokenInHead(head, weights[i], received[i], telling[i]) for i, head in enumerate(layer)]
