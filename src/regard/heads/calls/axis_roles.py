"""What each axis of attention weights is: texts (and windows), heads, or queries; read from labels of their numbers.

Along heads the features of the queries change, and not their tokens. Along texts both the tokens of the queries and
those of the keys change; along the queries, only their own. One axis may hold several of these, such as heads · texts.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from regard.heads.calls.lineage import LineageStep
from regard.heads.calls.number_labels import Labeller, NumberLabels, Unlabelled, varies

TEXT, HEAD, QUERY = "text", "head", "query"


class AxisPart(NamedTuple):
    """A part of an axis: its size, its role ("" where it has one entry), and by how much labels change along it."""

    size: int
    role: str = ""
    step: int = 0


class AxisPlan(NamedTuple):
    """The axes of weights before their keys, each split into parts of one role, and the order of these parts."""

    parts: tuple[AxisPart, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(part.size for part in self.parts)

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(part.role for part in self.parts)

    @property
    def order(self) -> list[int]:
        """Texts, heads, queries; texts before their windows, and heads as in the projection."""
        rank = (TEXT, HEAD, QUERY)
        return sorted(range(len(self.parts)), key=lambda i: (rank.index(self.parts[i].role), -self.parts[i].step))

    @property
    def reorders(self) -> bool:
        return self.order != sorted(self.order)

    @property
    def is_usual(self) -> bool:
        """Is it (B, H, T)?"""
        return self.roles == (TEXT, HEAD, QUERY) or (self.roles == (TEXT, TEXT, QUERY) and self.sizes[1] == 1)

    @property
    def has_rows_last(self) -> bool:
        return self.roles[-1] == QUERY and self.roles.count(QUERY) == 1

    def count(self, role: str) -> int:
        return math.prod(size for size, one in zip(self.sizes, self.roles, strict=True) if one == role)

    def apply(self, t: Tensor) -> Tensor:
        """(…, x, y) → (B, H, x, y); x may be another number than that of the queries, where they are last."""
        is_plain = math.prod(t.shape[:-1]) == math.prod(self.sizes)  # also where heads and queries are in one axis
        sizes = self.sizes if is_plain or not self.has_rows_last else (*self.sizes[:-1], t.shape[-2])
        axes = [*self.order, len(sizes)]
        rows = math.prod(sizes[i] for i in self.order if self.roles[i] == QUERY)
        return (
            t.reshape(*sizes, t.shape[-1]).permute(axes).reshape(self.count(TEXT), self.count(HEAD), rows, t.shape[-1])
        )


class CallPart(NamedTuple):
    """What of its module's input a call has, by label: tokens of queries and of keys, features of heads."""

    tokens: Tensor  # (B, T)
    keys: Tensor  # (B, S)
    features: Tensor  # (H,)


class AxisRoles(NamedTuple):
    """The roles of the axes, or why these weights are not between tokens; and what of its input a call has."""

    plan: AxisPlan | None
    refusal: str = ""
    part: CallPart | None = None
    is_proven: bool = True  # are its queries from projections? The axes of other tensors may be anything

    @property
    def part_of_several(self) -> CallPart | None:
        """What of its input the call has, where it may be one of several calls for heads or for texts."""
        if self.plan is None or (self.plan.count(HEAD) > 1 and self.plan.count(TEXT) > 1):
            return None
        return self.part


def may_be_labelled(shape: tuple[int, ...]) -> bool:
    """Are these weights few enough to be labelled only to find out whether their call is one of several?"""
    return math.prod(shape) <= 1 << 20


def part_of_usual(roles: AxisRoles | None) -> CallPart | None:
    """What of its module's input a call has, where it is proven to be (B, H, T, S)."""
    is_usual = roles is not None and roles.is_proven and roles.plan is not None and roles.plan.is_usual
    return roles.part if roles is not None and is_usual else None


BETWEEN_FEATURES = "its weights are between features, not between tokens"
FEATURES_AS_QUERIES = "its softmax is over tokens, of features: it has no queries"


def roles_of_scores(step: LineageStep | None, keys: int = -1) -> AxisRoles | None:
    """The axes of scores, which a product of queries and keys made; keys: their axis. None where nothing tells."""
    if step is None or not step.is_scores or not step.has_features_last:
        return None
    labeller = Labeller()
    try:
        queries, other = (labeller.labels(step, side).map(lambda t: t.movedim(keys, -1)) for side in (0, 1))
        if not varies(other.place, -1) and not varies(other.feature, -1):  # keys · queries
            queries, other = other, queries
        return _roles(queries, other, step.is_projected)
    except (Unlabelled, RuntimeError):
        return None


def roles_of_factors(q: LineageStep | None, k: LineageStep | None) -> AxisRoles | None:
    """The same for queries (…, T, D) and keys (…, S, D)."""
    if q is None or k is None or not q.has_features_last:
        return None
    labeller = Labeller()
    try:
        queries, keys = labeller.labels(q), labeller.labels(k)
        if len(q.shape) == len(k.shape) == 4 and q.shape[1] > k.shape[1] > 1:  # heads that share keys
            keys = keys.map(lambda t: t.repeat_interleave(q.shape[1] // k.shape[1], 1))
        lead = torch.broadcast_shapes(q.shape[:-2], keys.place.shape[:-2])
        T, S = q.shape[-2], k.shape[-2]
        queries = queries.map(lambda t: t[..., :1].expand(*lead, T, S))
        return _roles(queries, keys.map(lambda t: t[..., 0].unsqueeze(-2).expand(*lead, T, S)), q.is_projected)
    except (Unlabelled, RuntimeError):
        return None


def has_features_as_rows(step: LineageStep | None, keys: int = -1) -> bool:
    """Is a softmax of these numbers over tokens, and each of its rows a feature of a projection?"""
    if step is None or step.is_scores or not step.is_projected:
        return False
    try:
        place, feature = Labeller().labels(step).map(lambda t: t.movedim(keys, -1))
    except Unlabelled:
        return False
    over_tokens = varies(place, -1) and not varies(feature, -1)
    return over_tokens and varies(feature, -2) and not varies(place, -2)


def mixes_tokens(step: LineageStep, keys: int) -> bool:
    """Are these numbers weights of tokens on tokens, and those of this axis the ones that are summed over?"""
    roles = roles_of_scores(step, keys)
    return roles is not None and roles.plan is not None and roles.plan.count(QUERY) > 1


def are_weights(step: LineageStep | None, width: int) -> bool:
    """Are these values weights themselves, with tokens in the axis that holds the features of values?"""
    if step is None or not step.is_scores:
        return False
    labeller = Labeller()
    try:
        both = [labeller.labels(step, side) for side in (0, 1)]
    except Unlabelled:
        return False
    return any(varies(place, width) and not varies(feature, width) for place, feature in both)


def multiplies_keys_with_values(step: LineageStep) -> bool:
    """Was this made by a product that sums over tokens, of features with features, as in linear attention?"""
    while step.kind != "product":
        scores = [parent for parent in step.parents if parent.is_scores]
        if not scores:
            return False
        step = scores[0]
    labeller, (*terms, result) = Labeller(), step.args
    for parent, term, other in zip(step.parents, terms, reversed(terms), strict=True):
        summed = [axis for axis, letter in enumerate(term) if letter in other and letter not in result]
        try:
            place, feature = labeller.labels(parent)
        except Unlabelled:
            return False
        if len(summed) != 1 or not parent.is_projected:
            return False
        if not varies(place, summed[0]) or varies(feature, summed[0]):
            return False
    return True


def _roles(queries: NumberLabels, keys: NumberLabels, is_proven: bool) -> AxisRoles | None:
    """From labels (…, S) of queries and of keys."""
    if varies(queries.place, -1) or varies(queries.feature, -1):
        return None
    if varies(keys.feature, -1) and not varies(keys.place, -1):
        return AxisRoles(None, BETWEEN_FEATURES, is_proven=is_proven)
    q, k = queries.map(lambda t: t[..., 0]), keys.map(lambda t: t[..., -1])
    found: list[AxisPart] = []
    for axis in range(q.place.dim()):
        parts = _parts(q, k, axis)
        if parts is None:
            return None
        found.extend(parts)
    roles = _with_one_row_axis([part.role for part in found])
    if roles is None:
        return None
    plan = AxisPlan(tuple(part._replace(role=role) for part, role in zip(found, roles, strict=True)))
    tokens, features, own_keys = (plan.apply(t) for t in (queries.place[..., :1], queries.feature[..., :1], keys.place))
    part = CallPart(tokens[:, 0, :, 0], own_keys[:, 0, 0], features[0, :, 0, 0]) if own_keys.numel() else None
    return AxisRoles(plan, part=part, is_proven=is_proven)


def _parts(q: NumberLabels, k: NumberLabels, axis: int) -> list[AxisPart] | None:
    """The parts of one axis, each of one role; None where one is not understood."""
    size = q.place.shape[axis]
    if size == 1:
        return [AxisPart(1)]
    whole = _part(q, k, axis)
    if whole is not None:
        return [whole] if whole.role != TEXT else _texts(q if varies(q.place, axis) else k, axis)
    for inner in (n for n in range(size // 2, 1, -1) if size % n == 0):
        split = partial(torch.unflatten, dim=axis, sizes=(size // inner, inner))
        q_split, k_split = q.map(split), k.map(split)
        last = _part(q_split, k_split, axis + 1)
        if last is not None:
            first = partial(torch.select, dim=axis + 1, index=0)
            outer = _parts(q_split.map(first), k_split.map(first), axis)
            return None if outer is None else [*outer, last]
    return None


def _texts(labels: NumberLabels, axis: int) -> list[AxisPart] | None:
    """An axis of texts as one part, or as two where texts and their windows are not in the order of the input."""
    place = labels.place.movedim(axis, -1).flatten(0, -2)[0]
    steps, size = place - place[0], len(place)
    if bool((steps.diff() > 0).all()):
        return [AxisPart(size, TEXT, int(steps[1]))]
    for inner in (n for n in range(2, size) if size % n == 0):
        outer = int(steps[inner])
        if torch.equal(steps, (torch.arange(size // inner)[:, None] * outer + steps[:inner]).flatten()):
            return [AxisPart(size // inner, TEXT, abs(outer)), AxisPart(inner, TEXT, int(steps[1].abs()))]
    return None


def _part(q: NumberLabels, k: NumberLabels, axis: int) -> AxisPart | None:
    """None where an axis has no role, or several."""
    place, feature = varies(q.place, axis), varies(q.feature, axis)
    if place and feature:
        return None
    if not place and not feature:  # the same queries for several keys
        place, feature, q = varies(k.place, axis), varies(k.feature, axis), k
        if place == feature:
            return None
    role = HEAD if feature else TEXT if varies(k.place, axis) else QUERY
    labels = q.feature if feature else q.place
    return AxisPart(labels.shape[axis], role, int((labels.select(axis, 1) - labels.select(axis, 0)).abs().flatten()[0]))


def _with_one_row_axis(roles: list[str]) -> list[str] | None:
    """The roles with one axis of queries: of several the last, the others are texts whose keys are the same."""
    rows = [i for i, role in enumerate(roles) if role == QUERY]
    if not rows:
        free = [i for i, role in enumerate(roles) if not role]
        if not free:
            return None
        rows = [free[-1]]
    elif len(rows) > 1 and rows[:-1] != [0]:
        return None
    return [QUERY if i == rows[-1] else role if role and i not in rows else TEXT for i, role in enumerate(roles)]
