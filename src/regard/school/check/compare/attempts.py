"""Attempts: the sizes and masks with which a layer is tried, until it runs and is explained; and once more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import torch

from regard.mistakes.formula import Formula
from regard.mistakes.search import LARGEST, TOLERANCE, explanations_of_size
from regard.school.check.compare import constructor_arguments as arguments
from regard.school.check.compare.attention_functions import function_experiment
from regard.school.check.compare.call_forms import mask_argument
from regard.school.check.compare.experiment import Attempt, Experiment, experiment
from regard.school.check.compare.extensions import is_same_for_another_text, with_extension
from regard.school.check.learner_code.subject import Subject, is_function
from regard.school.check.request import Request
from regard.support.hidden_scores import HIDES_IN_EXAMPLE
from regard.traces.arrangements import arranged


def first_attempt(subject: Subject, request: Request) -> Attempt:
    """At the first sizes at which it runs and is explained; else as at the first of all."""
    if is_function(subject):
        return _with_or_without_mask(subject, request.probes[0], request)
    probes = request.probes[:1] if subject.is_built else request.probes
    if arguments.shares_key_heads(subject.described, subject.source) and not any(one.kv_heads for one in probes):
        probes = (arguments.GROUPED, *probes)
    first = None
    for sizes, square in product(probes, (False, True)):
        result = _extended(_with_or_without_mask(subject, sizes, request, square))
        first = first or result
        if result.is_explained or (first is result and isinstance(result, Experiment)):
            return result
        if result.problem or subject.is_built:
            return first
    assert first is not None
    return first


def at_even_sizes(subject: Subject, request: Request) -> Experiment | None:
    """A layer that fails at odd sizes, such as with rotary positions, where it runs."""
    if subject.is_built or is_function(subject):
        return None
    results = (experiment(subject, sizes, 0, request) for sizes in request.probes[1:])
    return next((one for one in results if isinstance(one, Experiment)), None)


def attempt_with_mask(result: Experiment) -> Experiment | None:
    """The same layer, called with a mask over the future, where it takes a mask."""
    if mask_argument(result.subject.described) is None:
        return None
    if result.case.causal and not any("no causal mask" in one for one in result.names):
        return None
    masked = _attempt(result.subject, result.sizes, 0, result.request, masked=True)
    if result.extension is not None:
        masked = _extended(masked)
    return masked if isinstance(masked, Experiment) else None


def other_attempts(result: Experiment) -> Iterator[Attempt]:
    """The same at other sizes, with other weights."""
    square = result.case.x.shape[-1] == result.case.width
    choices: tuple[arguments.ProbeSizes, ...] = (
        (arguments.OTHER_GROUPED,) if result.sizes.kv_heads else arguments.OTHERS
    )
    if result.subject.is_built:
        choices = (replace(result.sizes, B=3, T=7 if result.sizes.context_length > 7 else 4),)
    for sizes in choices:
        other = _attempt(result.subject, sizes, 7, result.request, square=square, masked=bool(result.call.mask))
        if isinstance(other, Experiment):
            other = with_constant_scale(other)
            other = other if result.extension is None else _extended(other)
        yield other


def is_confirmed(result: Experiment) -> bool:
    """Is the explanation the same at other sizes, with other weights?"""
    other = next((one for one in other_attempts(result) if isinstance(one, Experiment)), None)
    return other is not None and agrees_elsewhere(result, other)


def agrees_elsewhere(first: Experiment, other: Experiment) -> bool:
    """Does the second experiment have an explanation of the first one?"""
    factors = [one.case.factor for one in (first, other) if one.case.factor is not None]
    if len(factors) == 2 and abs(factors[0] - factors[1]) > 1e-6:  # not a constant, then
        return False
    return bool(set(first.names) & set(other.names)) and (first.extension is None) == (other.extension is None)


def _attempt(
    subject: Subject,
    sizes: arguments.ProbeSizes,
    seed: int,
    request: Request,
    *,
    square: bool = False,
    masked: bool = False,
) -> Attempt:
    if is_function(subject):
        return function_experiment(subject, sizes, seed, request, masked)
    return experiment(subject, sizes, seed, request, square=square, masked=masked)


def _with_or_without_mask(
    subject: Subject, sizes: arguments.ProbeSizes, request: Request, square: bool = False
) -> Attempt:
    """Without a mask; with one, where the code fails without."""
    result = _attempt(subject, sizes, 0, request, square=square)
    if result.failed is None or mask_argument(subject.described) is None:
        return result
    masked = _attempt(subject, sizes, 0, request, square=square, masked=True)
    return masked if isinstance(masked, Experiment) else result


def _extended(result: Attempt) -> Attempt:
    """Explained as the formula and something beside it, where the formula alone does not."""
    if not isinstance(result, Experiment) or result.is_explained:
        return result
    extended = with_extension(result)
    return extended if extended.extension is None or is_same_for_another_text(extended) else result


def with_constant_scale(result: Experiment) -> Experiment:
    """Where nothing explains it: try the number by which the code multiplies the scores, if a torch call shows one."""
    if result.is_explained:
        return result
    for factor in _factors(result):
        cases = [replace(case, factor=factor) for case in result.cases]
        for size, case in product(range(1, LARGEST + 1), cases):
            matches = explanations_of_size(case, [result.out], size, TOLERANCE, result.reading.mistakes)
            if matches:
                return replace(result, case=case, variants=[variant for _, variant in matches])
    return result


def _factors(result: Experiment) -> list[float]:
    """By what the scores were multiplied."""
    try:
        scores = Formula().steps(result.case)["scores"]
    except (RuntimeError, ValueError):
        return []
    heads = [scores.squeeze(), *scores.unbind(1)]  # all of them, or one where a loop runs over them
    factors: list[float] = []
    for value in (call.value for call in result.seen.forward if not call.value.is_complex()):
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
