"""Constant scale: a number in the code by which scores are multiplied, read from the torch calls and then proven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from regard.mistakes.formula import Case, Formula
from regard.mistakes.search import LARGEST, TOLERANCE, explanations_of_size
from regard.school.check.values import Experiment, distinguishable
from regard.support.hidden_scores import HIDES_IN_EXAMPLE
from regard.traces.arrangements import arranged


def with_constant_scale(result: Experiment, recorded: Sequence[Tensor], causal: bool | None = None) -> Experiment:
    """Try the number by which the code multiplies the scores, where a recorded tensor shows one.

    causal: must it hide the future? Where nothing says so, both are right.
    """
    if result.case is None or result.out is None or result.reading is None or result.variants is not None:
        return result
    for factor in _factors(result.case, recorded):
        case = replace(result.case, factor=factor)
        cases = [case] if causal is not None or case.mask is not None else [case, replace(case, causal=not case.causal)]
        for size, one in product(range(1, LARGEST + 1), cases):
            mistakes = distinguishable(result.reading)
            matches = explanations_of_size(one, [result.out], size, TOLERANCE, mistakes)
            if matches:
                return replace(result, case=one, variants=[variant for _, variant in matches])
    return result


def _factors(case: Case, recorded: Sequence[Tensor]) -> list[float]:
    """By what the scores were multiplied."""
    try:
        scores = Formula().steps(case)["scores"]
    except (RuntimeError, ValueError):
        return []
    heads = [scores.squeeze(), *scores.unbind(1)]  # all of them, or one where a loop runs over them
    factors: list[float] = []
    for value in recorded:
        if value.is_complex():
            continue
        t = value.squeeze().to(torch.float64)
        whole = next((one for one in heads if one.numel() == t.numel() and one.dim() == t.dim()), None)
        if whole is None:
            continue
        for one in arranged(whole, tuple(t.shape), ordered=True):
            is_seen = t.isfinite() & (t.abs() < -HIDES_IN_EXAMPLE) & (t != 0)
            if not is_seen.any():
                continue
            ratio = (t / one)[is_seen]
            factor = float(ratio.median())
            if factor and bool(((ratio - factor).abs() < 1e-6 * abs(factor)).all()) and abs(factor - 1) > 1e-6:
                factors += [] if any(abs(factor - known) < 1e-6 * known for known in factors) else [factor]
    return factors[:3]
