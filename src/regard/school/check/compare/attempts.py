"""Attempts: the sizes and masks with which a layer is tried, until it runs and is explained; and once more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from regard.school.check.compare.attention_functions import function_experiment
from regard.school.check.compare.call_forms import expects_causal, mask_argument
from regard.school.check.compare.constant_scale import with_constant_scale
from regard.school.check.compare.constructor_arguments import (
    GROUPED,
    OTHER_GROUPED,
    OTHERS,
    ProbeSizes,
    shares_key_heads,
)
from regard.school.check.compare.experiment import Attempt, Experiment, experiment
from regard.school.check.compare.extensions import is_same_for_another_text, with_extension
from regard.school.check.learner_code.protocol import Observation
from regard.school.check.learner_code.subject import Subject, is_function
from regard.school.check.learner_code.text_hints import own_text
from regard.school.check.request import Request


def first_attempt(subject: Subject, request: Request) -> Attempt:
    """At the first sizes at which it runs and is explained; else as at the first of all."""
    if is_function(subject):
        return _with_or_without_mask(subject, request.probes[0], request)
    probes = request.probes[:1] if subject.is_built else request.probes
    if shares_key_heads(subject.described, subject.source) and not any(one.kv_heads for one in probes):
        probes = (GROUPED, *probes)
    first = None
    for sizes, square in ((sizes, square) for sizes in probes for square in (False, True)):
        result = _extended(subject, request, _with_or_without_mask(subject, sizes, request, square))
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


def attempt_with_mask(subject: Subject, request: Request, result: Experiment) -> Experiment | None:
    """The same layer, called with a mask over the future, where it takes a mask."""
    if mask_argument(subject.described) is None:
        return None
    if result.case.causal and not any("no causal mask" in one for one in result.names):
        return None
    masked = _attempt(subject, result.sizes, 0, request, masked=True)
    if result.extension is not None:
        masked = _extended(subject, request, masked)
    return masked if isinstance(masked, Experiment) else None


def explained_by_constant(subject: Subject, request: Request, result: Experiment, seen: Observation) -> Experiment:
    """The experiment, explained by a constant scale where nothing else explains it."""
    causal = expects_causal(subject, result.observation.contents, request)
    return with_constant_scale(result, seen.forward, causal)


def other_attempts(subject: Subject, request: Request, result: Experiment) -> Iterator[Attempt]:
    """The same at other sizes, with other weights."""
    square = result.case.x.shape[-1] == result.case.width
    choices: tuple[ProbeSizes, ...] = (OTHER_GROUPED,) if result.sizes.kv_heads else OTHERS
    if subject.is_built:
        choices = (replace(result.sizes, B=3, T=7 if result.sizes.context_length > 7 else 4),)
    for sizes in choices:
        other = _attempt(subject, sizes, 7, request, square=square, masked=bool(result.call.mask))
        if isinstance(other, Experiment) and not other.is_explained:
            other = explained_by_constant(subject, request, other, other.record(subject))
            other = other if result.extension is None else _extended(subject, request, other)
        yield other


def is_confirmed(subject: Subject, request: Request, result: Experiment) -> bool:
    """Is the explanation the same at other sizes, with other weights?"""
    others = (one for one in other_attempts(subject, request, result) if isinstance(one, Experiment))
    other = next(others, None)
    return other is not None and agrees_elsewhere(result, other)


def agrees_elsewhere(first: Experiment, other: Experiment) -> bool:
    """Does the second experiment have an explanation of the first one?"""
    factors = [one.case.factor for one in (first, other) if one.case.factor is not None]
    if len(factors) == 2 and abs(factors[0] - factors[1]) > 1e-6:  # not a constant, then
        return False
    return bool(set(first.names) & set(other.names)) and (first.extension is None) == (other.extension is None)


def _attempt(
    subject: Subject, sizes: ProbeSizes, seed: int, request: Request, *, square: bool = False, masked: bool = False
) -> Attempt:
    if is_function(subject):
        return function_experiment(subject, sizes, seed, request, masked)
    return experiment(subject, sizes, seed, request, square=square, masked=masked)


def _with_or_without_mask(subject: Subject, sizes: ProbeSizes, request: Request, square: bool = False) -> Attempt:
    """Without a mask; with one, where the code fails without."""
    result = _attempt(subject, sizes, 0, request, square=square)
    if result.failed is None or mask_argument(subject.described) is None:
        return result
    masked = _attempt(subject, sizes, 0, request, square=square, masked=True)
    return masked if isinstance(masked, Experiment) else result


def _extended(subject: Subject, request: Request, result: Attempt) -> Attempt:
    """Explained as the formula and something beside it, where the formula alone does not."""
    if not isinstance(result, Experiment) or result.is_explained:
        return result
    causal = expects_causal(subject, result.observation.contents, request)
    text = own_text(subject.source, subject.described["name"])
    extended = with_extension(result, result.record(subject), text, causal)
    return extended if extended.extension is None or is_same_for_another_text(subject, extended) else result
