"""Which mistakes explain an output: every mistake and every pair of them is simulated, and compared with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import torch
from torch import Tensor

from regard.mistakes import masking, merging, projecting, scaling, splitting
from regard.mistakes.formula import Formula, Given, hide
from regard.mistakes.mistake import Mistake

MISTAKES: tuple[Mistake, ...] = (
    *projecting.MISTAKES,
    *splitting.MISTAKES,
    *scaling.MISTAKES,
    *masking.MISTAKES,
    *merging.MISTAKES,
)
Variant = tuple[Mistake, ...]


def explanations(
    given: Given, out: Tensor, tolerance: float, mistakes: Sequence[Mistake] = MISTAKES
) -> list[Variant] | None:
    """The smallest sets of mistakes that give this output; [()] where it is right, None where no set gives it.

    Several are returned where they are the same function on this input.
    """
    for variants in _by_size(given, mistakes):
        found = [variant for variant in variants if any(same(one, out, tolerance) for one in outputs(given, variant))]
        if found:
            return found
    return None


def _by_size(given: Given, mistakes: Sequence[Mistake]) -> Iterator[list[Variant]]:
    possible = [one for one in mistakes if one.applies(given)]
    yield [()]
    yield [(one,) for one in possible]
    common = [one for one in possible if not one.rare]
    yield [pair for pair in combinations(common, 2) if pair[0].step != pair[1].step]


def outputs(given: Given, variant: Variant) -> Iterator[Tensor]:
    """What a layer with these mistakes gives, for each usual way to hide; nothing where its shapes do not fit."""
    formula = replace(Formula(), **{one.step: one.act for one in variant})
    ways = (hide, *masking.ALTERNATIVES) if formula.hide is hide and given.causal else (formula.hide,)
    for way in ways:
        try:
            yield replace(formula, hide=way)(given)
        except (RuntimeError, ValueError):  # these weights have no place in this variant
            return


def same(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Are they the same numbers, also where they are not finite?"""
    if a.shape != b.shape or not torch.equal(a.isnan(), b.isnan()):
        return False
    a, b = a.nan_to_num(0.0), b.nan_to_num(0.0)
    return bool(((a - b).abs() <= tolerance * b.abs().amax().clamp(min=1e-30)).all()) if b.numel() else True
