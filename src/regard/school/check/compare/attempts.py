"""Attempts: the sizes and masks with which a layer is tried, until it runs and is explained; and once more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product

import torch

from regard.mistakes.formula import Formula
from regard.mistakes.search import LARGEST, TOLERANCE, explanations_of_size
from regard.school.check.compare import constructor_arguments as arguments
from regard.school.check.compare.attention_functions import NO_OUTPUT, function_experiment
from regard.school.check.compare.call_forms import LAYOUTS, mask_argument, mask_of
from regard.school.check.compare.experiment import WRONG_SHAPE, Attempt, Experiment, experiment
from regard.school.check.compare.extensions import is_same_for_another_text, with_extension
from regard.school.check.compare.recipes import known_recipe
from regard.school.check.compare.run_reading import with_mask_read, with_run_reading
from regard.school.check.learner_code.protocol import Failure
from regard.school.check.learner_code.subject import Subject, is_function, run_function
from regard.school.check.learner_code.text_hints import names_a_mask_of_tokens, names_rotary, stated, with_header
from regard.school.check.request import Request
from regard.support.hidden_scores import HIDES_IN_EXAMPLE
from regard.traces.arrangements import arranged


def first_attempt(subject: Subject, request: Request) -> Attempt:
    """At the first sizes at which it runs and is explained; else as at the first of all."""
    if is_function(subject):
        return _function_attempt(subject, request)
    probes = _probes(subject, request)
    first, has_run = None, False
    for sizes, square in product(probes, (False, True)):
        if has_run and sizes == arguments.PROBES[2]:
            break  # that is for layers that run nowhere else
        result = _extended(_with_or_without_mask(subject, sizes, request, square))
        if known_recipe(subject).is_square and not isinstance(result, Experiment) and sizes != probes[-1]:
            continue  # it was tried at such sizes, and cannot run there
        has_run = has_run or isinstance(result, Experiment)
        if first is None or (isinstance(first, Experiment) and isinstance(result, Experiment)):
            first = result  # of a rotary layer, that at even sizes
        if result.is_explained or (
            _is_read_well(result, sizes) and (first is result or (sizes.kv_heads and not result.unread))
        ):
            return result
        if result.problem or subject.is_built:
            return first
    assert first is not None
    return first


def _is_read_well(result: Attempt, sizes: arguments.ProbeSizes) -> bool:
    """Did it run, and not at odd sizes where half of a head, or a quarter, is rotated?"""
    is_odd = sizes.head_dim % 2 and not sizes.kv_heads and names_rotary(result.text)
    return isinstance(result, Experiment) and not is_odd


def _function_attempt(subject: Subject, request: Request) -> Attempt:
    """At the first sizes; at even ones where it fails there."""
    first = _extended(_with_or_without_mask(subject, request.probes[0], request))
    other = None if first.failed is None else _extended(_with_or_without_mask(subject, request.probes[1], request))
    return other if isinstance(other, Experiment) else first


def _probes(subject: Subject, request: Request) -> tuple[arguments.ProbeSizes, ...]:
    """The sizes that are tried: one with fewer key heads first, where the layer takes their number."""
    if subject.is_built:
        return request.probes[:1]
    is_shared = arguments.shares_key_heads(subject.described, subject.source, known_recipe(subject).roles)
    is_asked = is_shared and not any(one.kv_heads for one in request.probes)
    if not is_asked:
        return request.probes
    rotated = [arguments.GROUPED_EVEN] if names_rotary(subject.source) else []
    return (arguments.GROUPED, *rotated, *request.probes)


def at_even_sizes(subject: Subject, request: Request) -> Experiment | None:
    """A layer that fails at odd sizes, such as with rotary positions, where it runs."""
    if subject.is_built or is_function(subject):
        return None
    choices = product(request.probes[1:], (False, True))
    results = (_extended(experiment(subject, sizes, 0, request, square=square)) for sizes, square in choices)
    return next((one for one in results if isinstance(one, Experiment)), None)


def attempt_with_mask(result: Experiment) -> Experiment | None:
    """The same layer, called with a mask over the future, where it takes a mask."""
    mask = mask_of(result.subject)
    if mask is None or names_a_mask_of_tokens(result.text, mask):
        return None
    if result.case.causal and not any("no causal mask" in one for one in result.names):
        return None
    if result.anatomy is not None:
        return with_mask_read(result)
    masked = _attempt(result.subject, result.sizes, 0, result.request, masked=True, most=_most(result))
    if result.extension is not None:
        masked = _extended(masked)
    is_told = mask_argument(result.subject.described) is not None or masked.is_explained
    return masked if isinstance(masked, Experiment) and is_told else None


def _most(result: Experiment) -> int:
    """How many mistakes in the formula alone are sought again: none where the layer is more than the formula."""
    return LARGEST if result.extension is None else 0


def fails_for_a_batch(result: Experiment) -> Attempt | None:
    """The attempt to call a layer of one text with a batch, where that fails."""
    args = tuple(one.removesuffix(", one text") if isinstance(one, str) else one for one in result.call.args)
    call = replace(result.call, args=args, layout=LAYOUTS[0])
    failed = run_function(result.subject, result.job(calls=[call.as_json()]), result.tensors).failure
    if failed is None:
        return None
    known = {one.name: getattr(result, one.name) for one in fields(Attempt)}
    return Attempt(**{**known, "failed": failed, "variants": None})


def other_attempts(result: Experiment) -> Iterator[Attempt]:
    """The same at other sizes, with other weights."""
    square = result.case.x.shape[-1] == result.case.width
    choices: tuple[arguments.ProbeSizes, ...] = (
        (arguments.OTHER_GROUPED,) if result.sizes.kv_heads else (*arguments.OTHERS, *arguments.LAST_OTHERS)
    )
    if result.subject.is_built:
        choices = (replace(result.sizes, B=3, T=7 if result.sizes.context_length > 7 else 4),)
    has_run = False
    for sizes in choices:
        if has_run and sizes in arguments.LAST_OTHERS:
            return
        masked = bool(result.call.mask)
        other = _attempt(result.subject, sizes, 7, result.request, square=square, masked=masked, most=_most(result))
        if isinstance(other, Experiment):
            has_run, other = True, with_constant_scale(other)
            other = other if result.extension is None else _extended(other)
        yield other


def is_right_at(result: Experiment, T: int) -> bool:
    """Is it the formula for texts of so many tokens?"""
    sizes = replace(result.sizes, T=T, context_length=max(T, result.sizes.context_length))
    square = result.case.x.shape[-1] == result.case.width
    other = _attempt(result.subject, sizes, 7, result.request, square=square, masked=bool(result.call.mask), most=0)
    return isinstance(other, Experiment) and other.is_right


def is_confirmed(result: Experiment) -> bool:
    """Is the explanation the same at other sizes, with other weights? Keys that are not transposed run at one only."""
    others = (one for one in other_attempts(result) if isinstance(one, Experiment))
    if not any("keys not transposed" in names for names in result.names):
        other = next(others, None)
    elif (other := next((one for one in others if one.call.layout == result.call.layout), None)) is None:
        square, masked = result.case.x.shape[-1] == result.case.width, bool(result.call.mask)
        again = _attempt(result.subject, result.sizes, 7, result.request, square=square, masked=masked)
        other = again if isinstance(again, Experiment) else None
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
    most: int = LARGEST,
) -> Attempt:
    if is_function(subject):
        return function_experiment(subject, sizes, seed, request, masked)
    return experiment(subject, sizes, seed, request, square=square, masked=masked, most=most)


def _with_or_without_mask(
    subject: Subject, sizes: arguments.ProbeSizes, request: Request, square: bool = False
) -> Attempt:
    """Without a mask; with one, where the code fails without."""
    result = _attempt(subject, sizes, 0, request, square=square)
    mask = mask_of(subject)
    if is_function(subject) and mask is not None and result.problem == NO_OUTPUT:
        return _returns_with_a_mask_only(result, mask)
    by_text = mask_argument(subject.described) is None
    if mask is None or not _is_required(subject, mask) or (result.failed is None and not by_text):
        return result
    masked = _attempt(subject, sizes, 0, request, square=square, masked=True)
    if by_text and not masked.is_explained:  # it may be another mask than was tried
        return replace(result, failed=None, problem=request.ask_for_value(mask))
    return masked if isinstance(masked, Experiment) else result


def _returns_with_a_mask_only(result: Attempt, mask: str) -> Attempt:
    """A function that gives its output where a mask is passed, and nothing without one."""
    masked = _attempt(result.subject, result.sizes, 0, result.request, masked=True)
    if not masked.is_explained or _is_required(result.subject, mask):
        return result
    return replace(result, problem="", failed=Failure(WRONG_SHAPE, f"Without {mask}, it returns no output."))


def _is_required(subject: Subject, name: str) -> bool:
    """Must an argument be given? What fails without one that need not be given is wrong."""
    return any(p["required"] for p in subject.described["call"] if p["name"] == name)


def _extended(result: Attempt) -> Attempt:
    """Explained as the formula and something beside it, where the formula alone does not."""
    if not isinstance(result, Experiment):
        return result
    if result.is_explained:
        read = with_run_reading(result) if _is_scaled_otherwise(result) else result
        return read if read.is_right else result
    extended = with_extension(result)
    if extended.extension is not None and not is_same_for_another_text(extended):
        extended = result
    if is_function(result.subject) or (extended.extension is not None and not extended.extension.unknown):
        return extended
    read = with_run_reading(result)
    return read if read.is_explained or extended.extension is None else extended


def _is_scaled_otherwise(result: Experiment) -> bool:
    """Is another scale the only difference, and does the code say that it is meant, as in T5 or with muP?"""
    source = result.subject.source
    said = with_header(source, stated(source, result.subject.described["name"]))
    return not is_function(result.subject) and any(
        len(variant) == 1 and variant[0].step == "scale" and bool(re.search(variant[0].announced or "$^", said))
        for variant in result.variants or ()
    )


def with_constant_scale(result: Experiment) -> Experiment:
    """Where nothing explains it: try the number by which the code multiplies the scores, if a torch call shows one."""
    if result.is_explained:
        return result
    for factor in _factors(result):
        cases = [replace(case, factor=factor) for case in result.cases]
        for size, case in product(range(1, LARGEST + 1), cases):
            tried = result.mistakes(result.reading)
            matches = explanations_of_size(case, [result.out], size, TOLERANCE, tried, "scale is a constant")
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
