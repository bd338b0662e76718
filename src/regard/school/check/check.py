"""check: is this layer right? If not, the name of the mistake, its line, and numbers to follow.

Values come first (values.py): the layer runs with known weights beside the formula and every known mistake in it. Then
behaviours (behaviours.py), and lines (locating.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.school.check.behaviours.behaviours import changes_arguments, observe
from regard.school.check.behaviours.block_wiring import attention_inside, wiring_around
from regard.school.check.behaviours.probe import Situation
from regard.school.check.compare.attention_functions import function_experiment
from regard.school.check.compare.call_forms import mask_argument
from regard.school.check.compare.constant_scale import with_constant_scale
from regard.school.check.compare.constructor_arguments import (
    GROUPED,
    OTHER_GROUPED,
    OTHERS,
    ProbeSizes,
    choose_arguments,
    shares_key_heads,
)
from regard.school.check.compare.experiment import (
    Experiment,
    Request,
    agrees_elsewhere,
    expects_causal,
    experiment,
    unknown_arguments,
)
from regard.school.check.compare.extensions import is_same_for_another_text, with_extension
from regard.school.check.compare.small_functions import check_small, kind_of
from regard.school.check.explain.ambiguities import attends_over_the_batch, beyond_the_formula, inverted_mask
from regard.school.check.explain.descriptions import describe_task, notes_on
from regard.school.check.explain.divergence import latest_divergence
from regard.school.check.explain.examples import counterexample, tiny_example
from regard.school.check.explain.exceptions import explain
from regard.school.check.explain.mistake_lines import likeliest, line_of
from regard.school.check.learner_code.subject import InsideSubject, LocalSubject, Observation, Subject
from regard.school.check.learner_code.text_hints import is_tokens_first, own_text
from regard.school.check.remedies import in_python
from regard.school.check.verdict import Finding, Verdict, with_code
from regard.traces.failures import describe_argument


def check(
    target: Any,
    *,
    causal: bool | None = None,
    arguments: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    solution: bool = False,
) -> Verdict:
    """Check an attention layer that somebody wrote: right, or which mistake it makes, and where.

    >>> class Unscaled(torch.nn.Module):
    ...     def __init__(self, d_in, d_out):
    ...         super().__init__()
    ...         self.W_q, self.W_k, self.W_v = (torch.nn.Linear(d_in, d_out) for _ in range(3))
    ...     def forward(self, x):
    ...         return torch.softmax(self.W_q(x) @ self.W_k(x).mT, dim=-1) @ self.W_v(x)
    >>> check(Unscaled).mistakes[0].name
    'no scale'

    It takes a class, which is built at several sizes, or a module as it is. Whatever computes the formula is right,
    however it is written.

    Options:
        causal: must it hide the future? Unless given, names and a mask in the layer say so; where nothing does, both
            are right.
        arguments: values for the constructor, by name, where their names say nothing.
        names: which weight is which, for W_query, W_key, W_value or qkv, and out_proj, where names do not tell.
        solution: show the right line of code, too.
    """
    if not (inspect.isfunction(target) or isinstance(target, (type, torch.nn.Module))):
        raise ValueError(f"check() takes a class, a module or a function of yours, not {describe_argument(target)}")
    request = Request(causal, dict(arguments or {}), dict(names or {}))
    verdict = check_subject(LocalSubject(target), request)
    verdict.problem, verdict.shows_fix = in_python(verdict.problem), solution
    return verdict


def check_subject(subject: Subject, request: Request) -> Verdict:
    """Check something that runs here or elsewhere."""
    with _one_thread():
        verdict = _checked_inside(subject, request) or _checked(subject, request)
    verdict.file = subject.file
    verdict.findings = with_code(verdict.findings, subject.source)
    return verdict


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small tensors are much quicker on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _checked_inside(subject: Subject, request: Request) -> Verdict | None:
    """The attention inside a block or a model; None where the subject is attention itself."""
    if is_function(subject):
        return None
    built = None if subject.is_built else choose_arguments(subject.described, request.probes[0], own=request.own)
    if built is not None and built.unknown:
        return None
    arguments = None if built is None else built.arguments
    contents = subject.run({"build": arguments}, {}).contents
    attention = attention_inside(contents)
    if attention is None:
        return None
    verdict = _checked(InsideSubject(subject, attention), request)
    wiring = wiring_around(subject, arguments, contents, attention["path"])
    verdict.findings += wiring.findings
    verdict.notes += [wiring.note] if wiring.note else []
    return verdict


def _checked(subject: Subject, request: Request) -> Verdict:
    if kind := is_function(subject) and kind_of(subject.described["name"], argument_names(subject)):
        return check_small(subject, kind, request.probes[0], request.seed)
    verdict = Verdict(subject.described["name"], "an attention layer")
    result = _first_experiment(subject, request)
    verdict.sizes = result.shown
    if result.guessed and result.variants is None and not result.problem:  # the guess may be wrong, not the layer
        result = replace(result, problem=unknown_arguments(result.guessed))
    if result.problem:
        verdict.problem = result.problem
        return verdict
    if result.failed is not None:
        verdict.findings = [explain(result.failed, subject, request, result.sizes)]
        ran = None if verdict.findings[0].name else _at_even_sizes(subject, request)
        if ran is None:
            return verdict
        result = ran
    assert result.case is not None
    assert result.call is not None
    if result.call.layout == "tokens first" and not is_tokens_first(_text(subject), result.observation.contents):
        verdict.task = describe_task(result)
        verdict.findings = [attends_over_the_batch(subject, result)]
        return verdict
    masked = _with_mask(subject, request, result)
    if masked is not None and masked.variants is not None and result.variants and "no causal mask" in result.names[0]:
        result, masked = masked, None  # it hides what its caller says
    seen = record(subject, result)
    result = with_constant_scale(result, values_of(seen), expects_causal(subject, result.observation, request))
    verdict.task = describe_task(result)
    verdict.notes = notes_on(result, masked)
    if result.variants is not None and not result.is_right and not _confirmed(subject, request, result):
        result = replace(result, variants=None)
    situation = Situation(subject, result, request, masked)
    if result.variants is None:
        changed = list(changes_arguments(situation))
        verdict.findings = changed or [_unknown(subject, request, result, seen)]
        if not changed and (problem := beyond_the_formula(_text(subject), verdict.findings[0])):
            verdict.findings, verdict.problem = [], problem
        return verdict
    mistakes = _mistakes(result, seen, subject.source)
    if masked is not None and (more_mistakes(masked, result) if mistakes else not masked.is_right):
        mistakes = _mask_mistakes(subject, request, masked)
    if (
        not mistakes
        and masked is not None
        and (inverted := inverted_mask(_text(subject), masked, record(subject, masked)))
    ):
        mistakes = [inverted]
    if not mistakes:
        mistakes = _elsewhere(subject, request, result)
    verdict.findings = [*mistakes, *_unexplained(observe(situation), mistakes)]
    if result.extension is not None and result.extension.unknown and not verdict.mistakes:
        what = result.extension.what.removesuffix(".")
        verdict.problem = f"{what[0].lower()}{what[1:]}; {result.extension.unknown}. Everything else in it is right."
    return verdict


def is_function(subject: Subject) -> bool:
    """Is it a function, not a class?"""
    return "build" not in subject.described


def argument_names(subject: Subject) -> list[str]:
    """The names of its arguments."""
    return [p["name"] for p in subject.described["call"]]


def _experiment(
    subject: Subject, sizes: ProbeSizes, seed: int, request: Request, *, square: bool = False, masked: bool = False
) -> Experiment:
    if is_function(subject):
        return function_experiment(subject, sizes, seed, request, masked)
    return experiment(subject, sizes, seed, request, square=square, masked=masked)


def _first_experiment(subject: Subject, request: Request) -> Experiment:
    """At the first sizes at which it runs and is explained; else as at the first of all."""
    first = None
    if is_function(subject):
        return _with_or_without_mask(subject, request.probes[0], request)
    probes = request.probes[:1] if subject.is_built else request.probes
    if shares_key_heads(subject.described, subject.source) and not any(one.kv_heads for one in probes):
        probes = (GROUPED, *probes)
    for sizes in probes:
        for square in (False, True):
            result = _extended(subject, request, _with_or_without_mask(subject, sizes, request, square))
            first = first or result
            if result.variants is not None or (first is result and result.case is not None):
                return result
            if result.problem or subject.is_built:
                return first
    assert first is not None
    return first


def _at_even_sizes(subject: Subject, request: Request) -> Experiment | None:
    """A layer that fails at odd sizes, such as with rotary positions, where it runs."""
    if subject.is_built or is_function(subject):
        return None
    results = (experiment(subject, sizes, 0, request) for sizes in request.probes[1:])
    return next((one for one in results if one.case is not None), None)


def _extended(subject: Subject, request: Request, result: Experiment) -> Experiment:
    """Explained as the formula and something beside it, where the formula alone does not."""
    if result.case is None or result.variants is not None:
        return result
    causal = expects_causal(subject, result.observation, request)
    extended = with_extension(result, record(subject, result), _text(subject), causal)
    return extended if extended.extension is None or is_same_for_another_text(subject, extended) else result


def _text(subject: Subject) -> str:
    """What the learner wrote of this class or function."""
    return own_text(subject.source, subject.described["name"])


def _with_or_without_mask(subject: Subject, sizes: ProbeSizes, request: Request, square: bool = False) -> Experiment:
    """Without a mask; with one, where the code fails without."""
    result = _experiment(subject, sizes, 0, request, square=square)
    if result.failed is None or mask_argument(subject.described) is None:
        return result
    masked = _experiment(subject, sizes, 0, request, square=square, masked=True)
    return result if masked.case is None else masked


def _with_mask(subject: Subject, request: Request, result: Experiment) -> Experiment | None:
    """The same layer, called with a mask over the future, where it takes a mask."""
    if mask_argument(subject.described) is None or result.case is None:
        return None
    if result.case.causal and (result.variants is None or not any("no causal mask" in one for one in result.names)):
        return None
    masked = _experiment(subject, result.sizes, 0, request, masked=True)
    if result.extension is not None:
        masked = _extended(subject, request, masked)
    return None if masked.failed or masked.problem or masked.case is None else masked


def record(subject: Subject, result: Experiment) -> Observation:
    """The torch calls of one run."""
    assert result.call is not None
    return subject.run(result.job(calls=[result.call.as_json()], record=True), result.tensors)


def values_of(seen: Observation) -> list[Tensor]:
    """What the torch calls of forward gave."""
    return [call.value for call in seen.recorded[seen.built :]]


def _confirmed(subject: Subject, request: Request, result: Experiment) -> bool:
    """Is the explanation the same at other sizes, with other weights?"""
    for other in _other_experiments(subject, request, result):
        if other.case is not None:
            return agrees_elsewhere(result, other)
    return False


def _other_experiments(subject: Subject, request: Request, result: Experiment) -> Iterator[Experiment]:
    square = result.case is not None and result.case.x.shape[-1] == result.case.width
    choices: tuple[ProbeSizes, ...] = (OTHER_GROUPED,) if result.sizes.kv_heads else OTHERS
    if subject.is_built:
        choices = (replace(result.sizes, B=3, T=7 if result.sizes.context_length > 7 else 4),)
    masked = bool(result.call and result.call.mask)
    for sizes in choices:
        other = _experiment(subject, sizes, 7, request, square=square, masked=masked)
        if other.case is not None and other.variants is None:
            seen = record(subject, other)
            other = with_constant_scale(other, values_of(seen), expects_causal(subject, other.observation, request))
            other = other if result.extension is None else _extended(subject, request, other)
        yield other


def _elsewhere(subject: Subject, request: Request, result: Experiment) -> list[Finding]:
    """What goes wrong at other sizes only."""
    others = list(_other_experiments(subject, request, result))
    if any(other.is_right for other in others):
        return []
    for other in others:
        if other.failed is not None:
            return [explain(other.failed, subject, request, other.sizes)]
        if other.case is not None:
            seen = record(subject, other)
            if other.variants is not None:
                return _mistakes(other, seen, subject.source)
            return [_unknown(subject, request, other, seen)]
    return []


def _mistakes(result: Experiment, seen: Observation, source: str) -> list[Finding]:
    """The mistakes of the smallest explanation."""
    assert result.case is not None
    assert result.out is not None
    assert result.variants is not None
    variant = likeliest(result.variants, seen)
    return [
        Finding(
            one.name,
            one.describe(result.case),
            one.why,
            one.fix,
            one.shows,
            line_of(one, variant, result.case, result.out, seen, source),
            example=tiny_example(one, variant, result.case),
        )
        for one in variant
    ]


def more_mistakes(masked: Experiment, result: Experiment) -> bool:
    """Has it, with a mask, the mistakes that it has without one, and another?"""
    alone, both = set(result.names[0]), set(masked.names[0] if masked.variants else ())
    return alone < both


def _mask_mistakes(subject: Subject, request: Request, masked: Experiment) -> list[Finding]:
    seen = record(subject, masked)
    if masked.variants is not None:
        return _mistakes(masked, seen, subject.source)
    return [_unknown(subject, request, masked, seen, with_mask=True)]


def _unknown(
    subject: Subject, request: Request, result: Experiment, seen: Observation, with_mask: bool = False
) -> Finding:
    """A difference that no known mistake explains: where it begins, and the smallest example that shows it."""
    assert result.case is not None
    is_told = expects_causal(subject, result.observation, request) is not None or result.case.mask is not None
    cases = [result.case] if is_told else [result.case, replace(result.case, causal=not result.case.causal)]
    where = latest_divergence(cases, seen)
    called = " when a mask is passed" if with_mask else ""
    begins = f"The first step that differs: {where.step}."
    if where.is_changed:
        begins = f"The {where.step} are right at first, and then changed."
    elif where.before:
        begins = f"Everything up to {where.before} is right; the first step that differs: {where.step}."
    says = f"It computes something else{called}, and no known mistake explains it. {begins}"
    example = counterexample(subject, request, result)
    return Finding("", says, step=where.step, line=where.line, example=example)


def _unexplained(findings: list[Finding], mistakes: list[Finding]) -> list[Finding]:
    """Without what follows from the mistakes: one error hides its consequences."""
    if not mistakes:
        return findings
    return [one for one in findings if one.name and one.name != "hard-coded sizes"]
