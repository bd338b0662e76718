"""Anatomy: queries, keys, values and weights of a layer, found in a run by what they compute, not by their names.

The layer runs on many texts at once. Where its queries, keys and values are each made of one token by one matrix, its
weights are the softmax of their products, and its output is made of what the weights mix, it is attention, whatever its
parameters are called and however they are kept. What the formula then says of these numbers is compared as ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from typing import Any

import torch
from torch import Tensor

from regard.school.check.compare import linear_maps as maps
from regard.school.check.compare.call_forms import inputs, random_tensor
from regard.school.check.compare.experiment import Experiment
from regard.school.check.compare.linear_maps import Affine, Base, KeptAt, ParameterIndex, fit_affine, is_close
from regard.school.check.compare.products import (
    RunHeads,
    RunProduct,
    calls_before,
    contexts,
    products,
    run_heads,
    scores_of,
)
from regard.school.check.compare.scoring import Scoring, scoring_of
from regard.school.check.learner_code.protocol import Observation
from regard.school.check.learner_code.text_hints import names_positions

_PRIMES = (29, 37, 43, 53, 67, 83, 101, 131)
_MOST_WIDTH = 110
_WORDS = ("values", "queries", "keys")


@dataclass(frozen=True)
class Made:
    """How queries, keys or values are made: of x by a matrix, then perhaps normalised, then perhaps turned."""

    map: Affine
    is_normed: bool = False
    place: KeptAt | None = None  # where the matrix is kept
    composed: float = 0.0  # by what the product of two matrices is multiplied, where the matrix is one; else 0
    over: str = ""  # what it is normalised over, where that is not its vectors
    has_own_bias: bool = True  # what is added is kept, too, or is 0, or depends on the position

    @property
    def factor(self) -> float:
        """By what the projection was multiplied."""
        return self.composed or 1.0 if self.place is None else self.place.factor

    @property
    def is_composed(self) -> bool:
        """Is the matrix a product of two?"""
        return self.composed != 0

    @property
    def is_kept(self) -> bool:
        """Is the matrix one that the layer keeps, or a product of two?"""
        return self.place is not None or self.is_composed


@dataclass(frozen=True)
class Anatomy:
    """What was found in a run."""

    head: RunHeads  # of all heads together
    queries: Made
    keys: Made
    values: Made
    scoring: Scoring
    out: Tensor  # (B, T, width)
    out_map: Affine | None  # from the joined context to the output
    out_place: KeptAt | None
    has_residual: bool
    seen: Observation
    x: Tensor  # (B, T, E), what was passed
    notes: list[str] = field(default_factory=list)

    @property
    def scale(self) -> Tensor:
        """By what the products of queries and keys are multiplied, (H,)."""
        return self.scoring.factor * self.queries.factor * self.keys.factor


def dissect(result: Experiment) -> Anatomy | str:
    """The anatomy of a layer; or a phrase that says what was not found."""
    width = result.tensors["x"].shape[-1]
    if width > _MOST_WIDTH or result.call.layout == "one text":
        return "it takes one text at a time"
    B, T = next(p for p in _PRIMES if p >= width + 8), result.sizes.T
    x = random_tensor(11, B, T, width)
    tensors = {**inputs(x), **_masks_for(result, B)}
    seen = result.run(record=True, tensors=tensors)
    if seen.failure is not None:
        return "it does not run on many texts"
    outs = result.outputs(seen, replace(result.sizes, B=B))
    if not outs:
        return "its output is not one vector for each token"
    return _Reader(result, seen, x, outs[0].double()).read()


def _masks_for(result: Experiment, B: int) -> dict[str, Tensor]:
    """The masks of a call, for so many texts."""
    named = {name: result.tensors[name] for name in result.call.args if isinstance(name, str)}
    named |= {name: result.tensors[name] for name in result.call.kwargs.values() if isinstance(name, str)}
    few = result.sizes.B
    is_mask = {n: t for n, t in named.items() if not n.startswith("x") and t.dim() > 2 and len(t) == few}
    return {name: t[:1].expand(B, *t.shape[1:]).clone() for name, t in is_mask.items()}


class _Reader:
    """One run, and the search for its parts."""

    def __init__(self, result: Experiment, seen: Observation, x: Tensor, out: Tensor) -> None:
        self.result, self.seen, self.x, self.out = result, seen, x, out
        self.B, self.T = x.shape[:2]
        state = {n.removeprefix("state."): t for n, t in result.tensors.items() if n.startswith("state.")}
        self.index = ParameterIndex(maps.with_normed_weights(state))
        self.tolerance = 1e-7 if result.dtype == "float64" else 1e-4

    def read(self) -> Anatomy | str:
        found = list(products(self.seen))
        mixing = contexts(found, self.B, self.seen.recorded)
        if not mixing:
            return "no weights that sum to 1 mix any values"
        reasons = []
        for parts in self._heads(mixing, found):
            result = self._anatomy(parts)
            if isinstance(result, Anatomy):
                return result
            reasons.append(result)
        return reasons[0] if reasons else "no product of queries and keys leads to its weights"

    def _heads(self, mixing: Sequence[RunProduct], found: Sequence[RunProduct]) -> Iterator[RunHeads]:
        """All heads together: of one product, or of one for each head, in a loop."""
        each: list[list[RunHeads]] = []
        for context in mixing:
            found_ways = [
                head
                for compared in scores_of(context, found, self.seen)
                for head in run_heads(context, compared, self.B, self.T)
            ]
            if found_ways:
                each.append(found_ways)
        if len(each) == 1:
            yield from each[0]
        elif each:
            for ways in zip(*each, strict=False):  # the first way of every head, then the second
                if len({head.q.shape[0] for head in ways}) == 1 and len({head.weights.shape for head in ways}) == 1:
                    yield _joined(ways)

    def _anatomy(self, head: RunHeads) -> Anatomy | str:
        own, scoring = _own_keys(head, self.T), scoring_of(head, self._caps())
        if own is None:
            return "its keys are not those of the tokens"
        notes = [] if len(own) == head.k.shape[2] else ["It has keys and values of its own beside those of the tokens."]
        if scoring is None:
            return "its weights are not a softmax of products of queries and keys"
        projected = self._projected(head, own)
        if isinstance(projected, str):
            return projected
        found, base = projected
        out_map, residual = self._output(head)
        place = None if out_map is None else self.index.find(out_map.weight)
        if out_map is not None and place is None and self.index.find_product(out_map.weight[0, 0]):
            notes.append("Its output projection is a product of two matrices.")
        notes += [base.note] if base.note else []
        scoring = replace(scoring, bias=scoring.bias[..., own], visible=scoring.visible[..., own])
        known = (head, found["queries"], found["keys"], found["values"], scoring)
        return Anatomy(*known, self.out, out_map, place, residual, self.seen, self.x, notes)

    def _projected(self, head: RunHeads, own: list[int]) -> tuple[dict[str, Made], Base] | str:
        """How queries, keys and values are made, and of what; or what is not made of each token alone."""
        reason, first = "", None
        kept: dict[str, tuple[Made, Base]] = {}  # by the word, where the weights are found
        for base in maps.bases(self.x, self._norms(), self._norms("GroupNorm")):
            found = {word: made for word in _WORDS if (made := self._made_by(head, word, own, base)) is not None}
            if missing := [word for word in _WORDS if word not in found]:
                reason = reason or f"its {missing[0]} are not made of each token alone, by a matrix"
                continue
            first = first or (found, base)
            kept |= {word: (made, base) for word, made in found.items() if made.is_kept and word not in kept}
            if all(made.is_kept for made in found.values()):
                return found, base
        if len(kept) == len(_WORDS) and self.result.call.texts > 1 and kept["keys"][1] is kept["values"][1]:
            return {word: made for word, (made, _) in kept.items()}, kept["queries"][1]  # each text has its own norm
        return first or reason

    def _norms(self, kind: str = "Norm") -> list[tuple[Tensor, Tensor | None]]:
        """The weights and biases of norms of x."""
        owners = {p["name"]: p["owner"] for p in self.result.observation.contents.get("parameters", ())}
        names = [n for n, owner in owners.items() if owner.endswith(kind) and n.endswith("weight")]
        weights = self.index.weights
        fitting = [n for n in names if n in weights and tuple(weights[n].shape) == (self.x.shape[-1],)]
        own = [n for n in weights if kind == "Norm" and re.search(r"(?i)gamma|gain|scale|norm|\bg$", n)]
        own = [n for n in own if n not in names and tuple(weights[n].shape) == (self.x.shape[-1],)]
        known = [(weights[n], weights.get(n.removesuffix("weight") + "bias")) for n in fitting]
        return known + [(t, None) for n in own for t in (weights[n], 1 + weights[n])]

    def _numbers(self) -> list[float]:
        """The numbers that the layer keeps, such as a scale."""
        attributes = self.result.observation.contents.get("attributes", {})
        return list({float(v): None for v in attributes.values() if type(v) in (int, float) and v > 0})

    def _caps(self) -> list[float]:
        """The numbers by which the scores may be bounded: those that are kept, and those of the text."""
        written = [float(v) for v in re.findall(r"(?<![\w.])\d+(?:\.\d*)?\b", self.result.text)[:60]]
        is_bounded = any(call.name == "tanh" for call in self.seen.forward)
        return list(dict.fromkeys([*self._numbers(), *(v for v in written if v > 1)])) if is_bounded else []

    def _made_by(self, head: RunHeads, word: str, own: list[int], base: Base) -> Made | None:
        """How the queries, keys or values of some heads are made; of a loop, head by head."""
        if not head.loop:
            one, operand = (head.mixed, 1) if word == "values" else (head.compared, word == "keys")
            t = {"queries": head.q, "keys": head.k[:, :, own], "values": head.v[:, :, own]}[word]
            return self._made(t, one.operands[operand], base)
        each = [made for one in head.loop if (made := self._made_by(one, word, own, base)) is not None]
        if len(each) < len(head.loop) or len({(len(one.map.weight), one.is_normed, one.factor) for one in each}) > 1:
            return None
        return _made_together(each)

    def _made(self, t: Tensor, number: int, base: Base) -> Made | None:
        """How a tensor (B, H, T, D) is made of tokens."""
        direct = fit_affine(t, base.tokens, self.tolerance)
        if direct is not None:
            return self._made_directly(maps.without_flat(direct, base), base)
        before = [n for n in sorted(calls_before(self.seen.recorded, number), reverse=True) if n >= self.seen.built]
        shaped = [u for n in before if (u := _as_heads(self.seen.recorded[n].value, t.shape)) is not None]
        linear = [(u, one) for u in shaped if (one := fit_affine(u, base.tokens, self.tolerance)) is not None]
        for u, one in linear[:4]:
            if maps.normed(t, u, self.tolerance):
                return Made(one, True, self._place(one, base))
            for n in shaped[:12]:
                if maps.normed(n, u, self.tolerance) and (turned := _turned(t, n, self.tolerance)) is not None:
                    return Made(turned, True, self._place(one, base))
        for u, one in linear[::-1][:4]:  # the first that were made
            for n in (t, *shaped[:12]):
                over = maps.normed_over(n, u, self.tolerance)
                if over and (n is t or _turned(t, n, self.tolerance) is not None):
                    return Made(one, True, self._place(one, base), over=over)
        return None

    def _made_directly(self, direct: Affine, base: Base) -> Made:
        """What a matrix alone makes: where it is kept, or whether it is a product of two."""
        D = direct.weight.shape[2]
        factors = [1.0, D**-0.5, D**-0.25, D**0.5, 1 / D, *(f for v in self._numbers() for f in (v, v**-0.5))]
        place = self._place(direct, base, factors)
        composed = 0.0 if place else self.index.find_product(direct.weight[0].flatten(0, 1))
        if not place and not composed and (rows := self.index.with_products.find(direct.weight[0], factors[:2])):
            composed = rows.factor
        biases = direct.bias[0] if place is None else direct.bias[0] / place.factor
        is_own = direct.has_positions or not bool((biases.abs() > 1e-9).any()) or base.flat is not None or not place
        return Made(direct, False, place, composed, "", is_own or self.index.find(biases) is not None)

    def _place(self, found: Affine, base: Base, factors: Sequence[float] = (1.0,)) -> KeptAt | None:
        """Where a matrix is kept; of what a layer norm hides, nothing is asked."""
        if base.flat is None:
            return self.index.find(found.weight[0], factors)
        weight = found.weight[0]
        return self.index.without(base.flat).find(weight - (weight @ base.flat)[..., None] * base.flat, factors)

    def _output(self, head: RunHeads) -> tuple[Affine | None, bool]:
        """The map from the joined context to the output, and whether x is added to it; a norm may follow."""
        mixed = [head.context, *self._with_positions(head)]
        goals = [self.out, *self._before_norm()]
        for context, goal, residual in product(mixed, goals, (False, True)):
            joined = context.transpose(1, 2).flatten(2)
            if residual and goal.shape != self.x.shape:
                continue
            goal = goal - self.x if residual else goal
            if is_close(goal, joined, self.tolerance):
                width = goal.shape[-1]
                eye = torch.eye(width, dtype=torch.float64)[None, None]
                return Affine(eye, torch.zeros(1, 1, width, dtype=torch.float64)), residual
            found = fit_affine(goal[:, None], joined, self.tolerance)
            if found is not None and not found.has_positions:
                return found, residual
        return None, False

    def _with_positions(self, head: RunHeads) -> Iterator[Tensor]:
        """The context with vectors added for the distance of two tokens, in the same shares as the values."""
        shape = head.context.shape
        if head.loop or head.weights.shape[2] != head.weights.shape[3] or not names_positions(self.result.text):
            return
        for call in self.seen.recorded[head.mixed.number + 1 :]:
            value = _as_heads(call.value, shape)
            if value is not None and _is_mixed_by_distance(value - head.context, head.weights):
                yield value

    def _before_norm(self) -> Iterator[Tensor]:
        """What the output is a norm of."""
        B, T, width = self.out.shape
        contents = self.result.observation.contents
        names = [*self.index.weights, *(one["name"] for one in contents.get("inside", ()))]
        if not any("norm" in name.lower() or "ln" in name.lower() for name in names):
            return
        for call in reversed(self.seen.forward[-20:]):
            value = call.value.double() if call.value.is_floating_point() else call.value
            value = value.transpose(0, 1) if value.shape == (T, B, width) else value
            if value.shape == self.out.shape and maps.normed(self.out[:, None], value[:, None], self.tolerance):
                yield value


def _is_mixed_by_distance(rest: Tensor, weights: Tensor) -> bool:
    """Is rest[b, h, i] the sum of weights[b, h, i, j] · r[j - i], with the same r for all texts and heads?"""
    B, H, T, D = rest.shape
    shares = torch.zeros(B, H, T, 2 * T - 1, dtype=rest.dtype)
    for i in range(T):
        shares[:, :, i, T - 1 - i : 2 * T - 1 - i] = weights[:, :, i]
    rows, goal = shares.reshape(-1, 2 * T - 1), rest.reshape(-1, D)
    is_any = float(goal.abs().max()) > 0
    return is_any and is_close(rows @ torch.linalg.lstsq(rows, goal).solution, goal, 1e-6)


def _made_together(each: Sequence[Made]) -> Made:
    """The projections of heads that a loop made one by one."""
    joined = Affine(torch.cat([one.map.weight for one in each], 1), torch.cat([one.map.bias for one in each], 1))
    places = [one.place for one in each if one.place is not None]
    names = tuple(dict.fromkeys(name for place in places for name in place.names))
    numbers = tuple(number for place in places for number in place.places)
    place = KeptAt(each[0].factor, names, numbers) if len(places) == len(each) else None
    composed, is_own = min(one.composed for one in each), all(one.has_own_bias for one in each)
    return Made(joined, each[0].is_normed, place, composed, each[0].over, is_own)


def _own_keys(head: RunHeads, T: int) -> list[int] | None:
    """Which keys are those of the tokens; others are the same for every text."""
    S = head.k.shape[2]
    if S == T:
        return list(range(S))
    pairs = torch.cat((head.k, head.v), -1)
    own = [s for s in range(S) if not is_close(pairs[1:, :, s], pairs[:-1, :, s])]
    return own if len(own) == T else None


def _joined(ways: Sequence[RunHeads]) -> RunHeads:
    """Heads that a loop made one by one."""
    names = ("q", "k", "v", "raw", "weights", "context")
    together: dict[str, Any] = {name: torch.cat([getattr(head, name) for head in ways], 1) for name in names}
    return replace(ways[0], **together, loop=tuple(ways))


def _as_heads(value: Tensor, shape: Sequence[int]) -> Tensor | None:
    """A tensor that holds the numbers of (B, H, T, D), in the usual arrangements; None where it is another."""
    B, H, T, D = shape
    if not value.is_floating_point() or value.numel() != B * H * T * D:
        return None
    t = value.double()
    if tuple(t.shape) == (B, T, H * D):
        return t.reshape(B, T, H, D).transpose(1, 2)
    if tuple(t.shape) == (B * H, T, D):
        return t.reshape(B, H, T, D)
    for order in permutations(range(4)) if t.dim() == 4 else ():
        if tuple(t.shape[i] for i in order) == tuple(shape):
            return t.permute(order)
    return None


def _turned(t: Tensor, n: Tensor, tolerance: float) -> Affine | None:
    """The linear maps of every position that make t of n, head by head, (B, H, T, D)."""
    each = [fit_affine(t[:, h : h + 1], n[:, h], tolerance) for h in range(t.shape[1])]
    if any(one is None for one in each):
        return None
    found = [one for one in each if one is not None]
    if len({len(one.weight) for one in found}) > 1:
        return None
    return Affine(torch.cat([one.weight for one in found], 1), torch.cat([one.bias for one in found], 1))


def turns_no_pairs(found: Affine) -> bool:
    """Is each number made of two as by an angle, cos · a + sin · b, and the two of a pair not by the same angle?"""
    first = found.weight[:1]
    turns = found.weight[1:] @ torch.linalg.pinv(first)  # (P - 1, H, D, D)
    if not is_close(turns @ first, found.weight[1:], 1e-5):
        return False
    of_two = (turns.abs() > 1e-6).sum(-1) <= 2
    by_angles = (turns.square().sum(-1) - 1).abs() < 1e-5
    eye = torch.eye(turns.shape[-1], dtype=turns.dtype).expand_as(turns)
    return bool(of_two.all()) and bool(by_angles.all()) and not is_close(turns @ turns.mT, eye, 1e-4)


def is_relative(queries: Affine, keys: Affine) -> bool:
    """Does what two tokens score at two positions depend on the distance of the positions only, as with rotary ones?"""
    q, k = queries.joined, keys.joined  # (P, H, D, E + 1)
    P = max(len(q), len(k))
    q, k = q.expand(P, *q.shape[1:]), k.expand(P, *k.shape[1:])
    forms = torch.einsum("ihda,jhdb->ijhab", q, k)
    return is_close(forms[1:, 1:], forms[:-1, :-1], 1e-5)
