"""Labels of the numbers of a tensor: which token of which text each belongs to, and which feature it is.

They are made by running the steps of a tensor (lineage.py) again on the labels of what it was made from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.heads.calls.lineage import BASE, Hole, LineageStep

_MOST_LABELS = 1 << 25  # of one tensor; a larger one is not labelled


class Unlabelled(Exception):
    """A tensor has no labels."""


class NumberLabels(NamedTuple):
    """Of each number of a tensor: the token of a text that it belongs to, and the feature that it is."""

    place: Tensor
    feature: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> NumberLabels:
        return NumberLabels(change(self.place), change(self.feature))


class Labeller:
    """Runs steps again on labels. Of a product there are two labels for each number: of its left and right factor."""

    def __init__(self) -> None:
        self._memo: dict[tuple[int, int], Any] = {}

    def labels(self, step: LineageStep, side: int = 0) -> NumberLabels:
        """The labels of a tensor; Unlabelled where it has none."""
        try:
            found = self._of(step, side)
        except (RuntimeError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise Unlabelled(str(error)) from error
        assert isinstance(found, NumberLabels)
        return found

    def _of(self, step: LineageStep, side: int) -> Any:
        key = id(step), side if step.is_scores else 0
        if key not in self._memo:
            if math.prod(step.shape) > _MOST_LABELS:
                raise Unlabelled("too large")
            method: Callable[[LineageStep, int], Any] = getattr(self, f"_{step.kind or 'new'}")
            self._memo[key] = method(step, side)
        return self._memo[key]

    def _new(self, step: LineageStep, _: int) -> NumberLabels:
        *lead, width = step.shape
        place = torch.arange(math.prod(lead)).view(*lead, 1).expand(step.shape) + step.args[0]
        return NumberLabels(place, torch.arange(width).expand(step.shape))

    def _unknown(self, step: LineageStep, _: int) -> NumberLabels:
        raise Unlabelled("written in parts")

    def _part(self, step: LineageStep, side: int) -> NumberLabels:
        base = step.parents[0]
        if base.kind == "reduce":
            return self._of(base, side)  # type: ignore[no-any-return]
        places, features = self._of(base, side)
        return NumberLabels(places[step.args[0]], features[step.args[0]])

    def _view(self, step: LineageStep, side: int) -> NumberLabels:
        parents = [self._of(parent, side) for parent in step.parents]

        def filled(value: Any, which: int) -> Any:
            if isinstance(value, Hole):
                return parents[value.number][which]
            return [filled(one, which) for one in value] if type(value) is list else value

        return NumberLabels(
            *(
                step.function(
                    *(filled(value, which) for value in step.args),
                    **{name: filled(value, which) for name, value in step.kwargs.items()},
                )
                for which in (0, 1)
            )
        )

    def _same(self, step: LineageStep, side: int) -> NumberLabels:
        return self._of(step.parents[0], side).map(lambda t: t.expand(step.shape))  # type: ignore[no-any-return]

    def _reduce(self, step: LineageStep, side: int) -> NumberLabels:
        dim, keep = step.args
        return self._of(step.parents[0], side).map(lambda t: t.amin(dim, keepdim=keep))  # type: ignore[no-any-return]

    def _linear(self, step: LineageStep, _: int) -> NumberLabels:
        width, number = step.shape[-1], step.args[0]
        place, feature = self._of(step.parents[0], 0)
        if varies(place, -1):  # it was transposed: its tokens were mixed, or are in the axis of features
            return self._new(step, 0)
        feature = _within(feature[..., :1], width, torch.arange(width)) + number
        return NumberLabels(place[..., :1].expand(step.shape), feature.expand(step.shape))

    def _project(self, step: LineageStep, _: int) -> NumberLabels:
        """A product with a learned matrix, whose axes are features."""
        term, result, new, weight = step.args
        place, feature = self._of(step.parents[0], 0).map(lambda t: _spread(t, term, result, step.shape))
        sizes = [step.shape[axis] for axis in new]
        own = torch.arange(math.prod(sizes)).view([s if axis in new else 1 for axis, s in enumerate(step.shape)])
        return NumberLabels(place, _within(feature, math.prod(sizes), own) + weight)

    def _conv(self, step: LineageStep, _: int) -> NumberLabels:
        """(N, C, …): features are in the second axis."""
        weight, kept = step.args
        parent, (_N, C, *space) = step.parents[0], step.shape
        labels = self._of(parent, 0)
        if not parent.kind:  # its last axis holds no features
            labels = NumberLabels(labels.place // parent.shape[-1], torch.zeros_like(labels.feature))
        where = (slice(None), slice(None), *(slice(0, 1) for _ in space))
        place, feature = labels.map(lambda t: t[where])
        pixels = torch.arange(math.prod(space)).view(1, 1, *space)
        images = place[:, :1].unique(return_inverse=True)[1]  # small numbers, however many convolutions follow
        place = images * math.prod(space) + pixels + place[:, :1] // BASE * BASE
        if not kept:
            feature = _within(feature[:, :1], C, torch.arange(C).view(1, C, *(1 for _ in space))) + weight
        return NumberLabels(place.expand(step.shape), feature.expand(step.shape))

    def _product(self, step: LineageStep, side: int) -> NumberLabels:
        """The labels of a factor; of those of a product, the side that changes along the axis that it adds."""
        parent, own, other, result = step.parents[side], step.args[side], step.args[1 - side], step.args[2]
        free = [axis for axis, letter in enumerate(own) if letter in result and letter not in other]
        labels: NumberLabels = self._of(parent, side)
        if parent.is_scores and not any(varies(t, axis) for t in labels for axis in free):
            labels = self._of(parent, 1 - side)
        return labels.map(lambda t: _spread(t, own, result, step.shape))


def varies(t: Tensor, axis: int) -> bool:
    """Do labels change along this axis?"""
    return t.shape[axis] > 1 and bool((t != t.narrow(axis, 0, 1)).any())


def _within(labels: Tensor, size: int, number: Tensor) -> Tensor:
    """Labels of the parts of what has these labels, without its beginning."""
    return (labels % BASE * size + number) % BASE


def _spread(t: Tensor, term: Sequence[str], result: Sequence[str], shape: tuple[int, ...]) -> Tensor:
    """Labels of a factor with the axes of the product: without those that are summed over, repeated along others."""
    for axis in reversed(range(len(term))):
        if term[axis] not in result:
            t = t.select(axis, 0)
    kept = [letter for letter in term if letter in result]
    t = t.permute([kept.index(letter) for letter in result if letter in kept])
    return t[tuple(slice(None) if letter in kept else None for letter in result)].expand(shape)
