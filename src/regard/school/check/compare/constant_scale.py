"""Constant scale: a number in the code by which scores are multiplied, read from the torch calls and then proven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import torch

from regard.mistakes.formula import Case, Formula
from regard.mistakes.search import LARGEST, TOLERANCE, explanations_of_size
from regard.school.check.compare.experiment import Experiment
from regard.school.check.learner_code.protocol import Recorded
from regard.support.hidden_scores import HIDES_IN_EXAMPLE
from regard.traces.arrangements import arranged


def with_constant_scale(result: Experiment, calls: Sequence[Recorded], causal: bool | None = None) -> Experiment:
    """Try the number by which the code multiplies the scores, where a recorded tensor shows one.

    causal: must it hide the future? Where nothing says so, both are right.
    """
    if result.is_explained:
        return result
    for factor in _factors(result.case, calls):
        case = replace(result.case, factor=factor)
        cases = [case] if causal is not None or case.mask is not None else [case, replace(case, causal=not case.causal)]
        for size, one in product(range(1, LARGEST + 1), cases):
            matches = explanations_of_size(one, [result.out], size, TOLERANCE, result.reading.mistakes)
            if matches:
                return replace(result, case=one, variants=[variant for _, variant in matches])
    return result


def _factors(case: Case, calls: Sequence[Recorded]) -> list[float]:
    """By what the scores were multiplied."""
    try:
        scores = Formula().steps(case)["scores"]
    except (RuntimeError, ValueError):
        return []
    heads = [scores.squeeze(), *scores.unbind(1)]  # all of them, or one where a loop runs over them
    factors: list[float] = []
    for value in (call.value for call in calls if not call.value.is_complex()):
        t = value.squeeze().to(torch.float64)
        full = next((one for one in heads if one.numel() == t.numel() and one.dim() == t.dim()), None)
        is_seen = t.isfinite() & (t.abs() < -HIDES_IN_EXAMPLE) & (t != 0)
        if full is None or not is_seen.any():
            continue
        for one in arranged(full, tuple(t.shape), ordered=True):
            ratio = (t / one)[is_seen]
            factor = float(ratio.median())
            if factor and bool(((ratio - factor).abs() < 1e-6 * abs(factor)).all()) and abs(factor - 1) > 1e-6:
                factors += [] if any(abs(factor - known) < 1e-6 * known for known in factors) else [factor]
    return factors[:3]
