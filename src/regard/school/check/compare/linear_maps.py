"""Linear maps: is a tensor of a run made of each token alone, by one matrix? Which matrix, and where is it kept?

With more texts than numbers in a token, a least-squares fit without a remainder is a proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

_EXACT = 1e-7  # of the largest number
_FLAT = 1e-4  # for a layer that computes in float32
_RANK = 1e-10  # of the largest singular value
_EPS = (1e-5, 1e-6, 1e-8, 1e-12, 0.0)
WeightAndBias = tuple[Tensor, Tensor | None]  # of a norm


@dataclass(frozen=True)
class Affine:
    """y = weight · x + bias for every token: weight (P, H, D, E), bias (P, H, D); P is 1 or counts positions."""

    weight: Tensor
    bias: Tensor

    @property
    def has_positions(self) -> bool:
        """Is it another map at every position?"""
        return len(self.weight) > 1

    @property
    def adds_positions(self) -> bool:
        """Is the matrix the same everywhere, and only what is added differs?"""
        return self.has_positions and is_close(self.weight, self.weight[:1].expand_as(self.weight))

    @property
    def joined(self) -> Tensor:
        """(P, H, D, E + 1), the bias as the last column."""
        return torch.cat((self.weight, self.bias[..., None]), -1)


def is_close(a: Tensor, b: Tensor, tolerance: float = _EXACT) -> bool:
    """Are they equal, but for rounding?"""
    largest = float(b.abs().max()) if b.numel() else 0.0
    return a.shape == b.shape and bool(((a - b).abs() <= tolerance * max(largest, 1e-30)).all())


def fit_affine(y: Tensor, x: Tensor, tolerance: float = _EXACT) -> Affine | None:
    """The affine map from tokens x (B, T, E) to y (B, H, T, D); None where there is none."""
    B, H, T, D = y.shape
    if x.shape[:2] != (B, T) or not bool(y.isfinite().all()):
        return None
    target = y.transpose(1, 2).reshape(B, T, H * D)
    ones = torch.cat((x, torch.ones(B, T, 1, dtype=x.dtype)), -1)
    for tokens, goal in ((ones.reshape(1, B * T, -1), target.reshape(1, B * T, -1)), _by_position(ones, target)):
        if tokens.shape[1] < tokens.shape[2] + 4:
            continue
        # The driver "gelsy" errs in batches of less than full rank, as after a layer norm.
        solution = torch.linalg.lstsq(tokens, goal, rcond=_RANK, driver="gelsd").solution
        if is_close(tokens @ solution, goal, tolerance):
            maps = solution.mT.unflatten(1, (H, D))
            return Affine(maps[..., :-1].contiguous(), maps[..., -1].contiguous())
    return None


def _by_position(ones: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    return ones.transpose(0, 1), target.transpose(0, 1)


@dataclass(frozen=True)
class Base:
    """What projections read: x, or a norm of it."""

    tokens: Tensor  # (B, T, E)
    note: str = ""
    flat: Tensor | None = (
        None  # (E,) the direction in which a layer norm leaves nothing: there a matrix may be anything
    )


def without_flat(found: Affine, base: Base) -> Affine:
    """The same map with nothing in the direction in which the tokens are all alike: that is a bias."""
    if base.flat is None:
        return found
    share = found.weight @ base.flat
    level = (base.tokens @ base.flat).mean()
    return Affine(found.weight - share[..., None] * base.flat, found.bias + share * level)


def bases(x: Tensor, norms: Sequence[WeightAndBias] = (), groups: Sequence[WeightAndBias] = ()) -> Iterator[Base]:
    """What projections may read; norms: the weights and biases that the norms of a layer have; groups: group norms."""
    yield Base(x)
    width, note = x.shape[-1:], "It normalises x before it projects it."
    for weight, bias in [(None, None), *norms]:
        flat = F.normalize(torch.ones(width, dtype=x.dtype) if weight is None else 1 / weight, dim=0)
        for eps in _EPS[:3]:
            yield Base(F.layer_norm(x, width, weight, bias, eps), note, flat)
            yield Base(F.rms_norm(x, width, weight, eps), note)
        yield Base(F.rms_norm(x, width, weight), note)
    for weight, bias in groups:
        yield from _group_norms(x, weight, bias)


def _group_norms(x: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[Base]:
    """Group norms of x (B, T, E), over some of its channels and all of its tokens."""
    width = x.shape[-1]
    for groups in (n for n in range(1, 33) if width % n == 0):
        for eps in _EPS[:2]:
            normed_x = F.group_norm(x.mT, groups, weight, bias, eps).mT
            yield Base(normed_x, "It normalises x before it projects it.")


def normed(y: Tensor, u: Tensor, tolerance: float = _EXACT) -> bool:
    """Is y (B, H, T, D) a norm of u, times a number and plus a number for each place of a vector?"""
    if y.shape != u.shape:
        return False
    joined = u.transpose(1, 2).flatten(2)
    for of_all in (False, True):
        t = joined if of_all else u
        made = [F.normalize(t, dim=-1)]
        made += [F.rms_norm(t, t.shape[-1:], eps=eps or None) for eps in _EPS]
        made += [F.layer_norm(t, t.shape[-1:], eps=eps) for eps in _EPS[:4]]
        for one in made:
            if of_all:
                one = one.unflatten(-1, (u.shape[1], -1)).transpose(1, 2)
            if _is_scaled(y, one, tolerance):
                return True
    return False


def normed_over(y: Tensor, u: Tensor, tolerance: float = _EXACT) -> str:
    """Over what else than its vectors y (B, H, T, D) is a norm of u: the tokens, the heads or the texts; "" if none."""
    for axis, what in ((2, "tokens"), (1, "heads"), (0, "texts")):
        if y.shape != u.shape or u.shape[axis] < 2:
            continue
        centred = u - u.mean(axis, keepdim=True)
        made = [F.normalize(u, dim=axis)]
        made += [t * (t.square().mean(axis, keepdim=True) + eps).rsqrt() for t in (u, centred) for eps in _EPS]
        if any(_is_scaled(y, one, tolerance) for one in made):
            return what
    return ""


def _is_scaled(y: Tensor, n: Tensor, tolerance: float) -> bool:
    """y = g · n + b with g and b for each head and place, (H, D)?"""
    mean_n, mean_y = n.mean((0, 2), keepdim=True), y.mean((0, 2), keepdim=True)
    centred, goal = n - mean_n, y - mean_y
    g = (centred * goal).sum((0, 2), keepdim=True) / (centred * centred).sum((0, 2), keepdim=True).clamp(min=1e-30)
    return is_close(g * centred, goal, tolerance) and bool((g.abs() > 1e-9).any())


@dataclass(frozen=True)
class KeptAt:
    """Where the numbers of a matrix are kept: a factor, and for each number the parameter and the place in it."""

    factor: float
    names: tuple[str, ...]
    places: tuple[tuple[str, int], ...]


def _without(t: Tensor, flat: Tensor) -> Tensor:
    """A weight without its part in a direction, along its axis of that length."""
    axes = [i for i, size in enumerate(t.shape) if size == len(flat) and t.dim() > 1]
    if not axes:
        return t
    moved = t.movedim(axes[-1], -1)
    return (moved - (moved @ flat)[..., None] * flat).movedim(-1, axes[-1])


def with_normed_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights, and those that torch's weight_norm makes of two of them: a length for each row, and a direction."""
    made = {}
    for name, length in weights.items():
        for one, other, owner in ((".original0", ".original1", "parametrizations.weight"), ("_g", "_v", "weight")):
            stem = name.removesuffix(one)
            direction = weights.get(stem + other)
            if stem != name and stem.endswith(owner) and direction is not None and len(length) == len(direction):
                rows = F.normalize(direction.flatten(1), dim=1).view_as(direction)
                made[stem.removesuffix(owner) + "weight"] = rows * length
    return {**weights, **made}


class ParameterIndex:
    """All numbers of a layer's parameters. They are random, so a number tells where it is from."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights
        self._names = list(weights)
        flat = [t.reshape(-1).double() for t in weights.values()]
        self._values = torch.cat(flat) if flat else torch.zeros(0, dtype=torch.float64)
        self._owner = torch.cat([torch.full((len(t),), i) for i, t in enumerate(flat)]) if flat else torch.zeros(0)
        self._first = [0]
        for t in flat:
            self._first.append(self._first[-1] + len(t))
        self._sorted, self._order = self._values.sort()

    def find(self, numbers: Tensor, factors: Sequence[float] = (1.0,)) -> KeptAt | None:
        """The places of these numbers, all divided by one of the factors; None where one is not kept anywhere."""
        flat = numbers.reshape(-1)
        if not len(self._values) or not len(flat):
            return None
        for factor in factors:
            wanted = flat / factor
            near = torch.searchsorted(self._sorted, wanted).clamp(max=len(self._sorted) - 1)
            before = (near - 1).clamp(min=0)
            nearer = (self._sorted[before] - wanted).abs() < (self._sorted[near] - wanted).abs()
            best = torch.where(nearer, before, near)
            if bool(((self._sorted[best] - wanted).abs() < 1e-6 * wanted.abs().max()).all()):
                return self._place(factor, self._order[best])
        return None

    def without(self, flat: Tensor) -> ParameterIndex:
        """The same without what its matrices have in one direction of the tokens."""
        return ParameterIndex({name: _without(t, flat) for name, t in self.weights.items()})

    def find_product(self, numbers: Tensor) -> float:
        """By what the product of two weights is multiplied in a matrix (out, in); 0 where it is no such product.

        1 for a weight with such a product added to it.
        """
        matrices = [(n, t if t.dim() == 2 else t.flatten(1)) for n, t in self.weights.items() if t.dim() > 1]
        pairs = [(a, b) for n, a in matrices for m, b in matrices if n != m and a.shape[1] == b.shape[0]]
        made = [a @ b for a, b in pairs if a.shape[0] == len(numbers) and b.shape[1] == numbers.shape[1]]
        rests = [numbers, *(numbers - t for _, t in matrices if t.shape == numbers.shape)]
        for one in made:
            for rest in rests:
                factor = float((rest * one).sum() / (one * one).sum().clamp(min=1e-30))
                if abs(factor) > 1e-6 and is_close(one * factor, rest, 1e-6):
                    return factor if rest is numbers and abs(factor - 1) > 1e-6 else 1.0
        return 0.0

    @cached_property
    def with_products(self) -> ParameterIndex:
        """The same with the products of every two matrices that fit."""
        matrices = {n: t for n, t in self.weights.items() if t.dim() == 2}
        pairs = [(n, m) for n, a in matrices.items() for m, b in matrices.items() if n != m and a.shape[1] == len(b)]
        return ParameterIndex({**self.weights, **{f"{n} {m}": matrices[n] @ matrices[m] for n, m in pairs}})

    def _place(self, factor: float, found: Tensor) -> KeptAt:
        owners = [int(self._owner[i]) for i in found]
        places = tuple((self._names[o], int(i) - self._first[o]) for o, i in zip(owners, found.tolist(), strict=True))
        return KeptAt(factor, tuple(dict.fromkeys(name for name, _ in places)), places)
