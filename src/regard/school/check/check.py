"""check: is this layer right? If not, the name of the mistake, its line, and numbers to follow.

Five stages, each with a type of its own; the first and the fourth may end with a verdict:

    run_layer         Ran       it was built at some sizes and called, and gave an output to compare
    call_with_mask    CalledWithMask    the same with a mask passed, where it takes one
    explain_values    Probe     which mistakes give the same numbers, here and at other sizes
    name_mistakes     Named     what is wrong in the values: names, lines and examples
    add_behaviours    Verdict   with what values cannot show
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.school.check.behaviours.behaviours import changes_arguments, observe_behaviours
from regard.school.check.behaviours.block_wiring import check_wiring
from regard.school.check.behaviours.probe import Probe
from regard.school.check.compare.attempts import (
    at_even_sizes,
    attempt_with_mask,
    explained_by_constant,
    first_attempt,
    is_confirmed,
)
from regard.school.check.compare.experiment import Experiment
from regard.school.check.compare.small_functions import check_small
from regard.school.check.explain.ambiguities import attends_over_the_batch, beyond_the_formula, inverted_mask
from regard.school.check.explain.exceptions import explain_crash
from regard.school.check.explain.findings import (
    describe_task,
    mistakes_elsewhere,
    mistakes_with_mask,
    named_mistakes,
    notes_on,
    unknown_difference,
)
from regard.school.check.learner_code.function_roles import small_kind
from regard.school.check.learner_code.subject import InsideSubject, LocalSubject, Subject, is_function, one_thread
from regard.school.check.learner_code.text_hints import is_tokens_first, own_text
from regard.school.check.request import IN_PYTHON, Request
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
    request = Request(causal, dict(arguments or {}), dict(names or {}), spelling=IN_PYTHON)
    verdict = check_subject(LocalSubject(target), request)
    verdict.shows_fix = solution
    return verdict


def check_subject(subject: Subject, request: Request) -> Verdict:
    """Check something that runs here or elsewhere: attention, or what is around it, too."""
    with one_thread():
        wiring = None if is_function(subject) else check_wiring(subject, request)
        verdict = _check_attention(subject if wiring is None else InsideSubject(subject, wiring.attention), request)
    if wiring is not None:
        verdict.findings += wiring.findings
        verdict.notes += [wiring.note] if wiring.note else []
    verdict.file = subject.file
    verdict.findings = with_code(verdict.findings, subject.source)
    return verdict


def _check_attention(subject: Subject, request: Request) -> Verdict:
    name, arguments = subject.described["name"], [p["name"] for p in subject.described["call"]]
    if kind := is_function(subject) and small_kind(name, arguments):
        return check_small(subject, kind, request.probes[0], request.seed)
    ran = run_layer(subject, request)
    if isinstance(ran, Verdict):
        return ran
    called = call_with_mask(ran)
    probe = explain_values(called)
    verdict = Verdict(name, describe_task(probe.result), [], notes_on(probe.result, probe.masked), sizes=ran.sizes)
    named = name_mistakes(probe, verdict)
    return add_behaviours(named, verdict) if isinstance(named, Named) else named


@dataclass(frozen=True)
class Ran:
    """A layer that gave an output to compare with the formula; sizes: what it was first built with."""

    subject: Subject
    request: Request
    result: Experiment
    sizes: dict[str, Any]


@dataclass(frozen=True)
class CalledWithMask(Ran):
    """The same, called with a mask, too, where it takes one; masked is None where it was called with it already."""

    masked: Experiment | None


@dataclass(frozen=True)
class Named:
    """A layer whose values are right, or wrong by these mistakes."""

    probe: Probe
    mistakes: list[Finding]


def run_layer(subject: Subject, request: Request) -> Ran | Verdict:
    """Build and call the layer at the first sizes at which it runs; a verdict where it does not."""
    attempt = first_attempt(subject, request)
    verdict = Verdict(subject.described["name"], "an attention layer", sizes=attempt.shown)
    verdict.problem = attempt.problem
    if attempt.guessed and not attempt.is_explained and not attempt.problem:  # the guess may be wrong, not the layer
        verdict.problem = request.ask_for_arguments(attempt.guessed)
    if verdict.problem:
        return verdict
    result = attempt if isinstance(attempt, Experiment) else None
    if attempt.failed is not None:
        verdict.findings = [explain_crash(attempt.failed, subject, request, attempt.sizes)]
        result = None if verdict.mistakes[0].name else at_even_sizes(subject, request)
    if result is None:
        return verdict
    contents = result.observation.contents
    if result.call.layout == "tokens first" and not is_tokens_first(_own_text(subject), contents):
        return replace(verdict, task=describe_task(result), findings=[attends_over_the_batch(subject, result)])
    return Ran(subject, request, result, verdict.sizes)


def call_with_mask(ran: Ran) -> CalledWithMask:
    """Call the layer with a mask over the future, where it takes a mask."""
    result, masked = ran.result, attempt_with_mask(ran.subject, ran.request, ran.result)
    if masked is not None and masked.is_explained and result.names and "no causal mask" in result.names[0]:
        result, masked = masked, None  # it hides what its caller says
    return CalledWithMask(ran.subject, ran.request, result, ran.sizes, masked)


def explain_values(called: CalledWithMask) -> Probe:
    """Which mistakes give the same numbers; nothing explains them unless it does so at other sizes as well."""
    subject, request = called.subject, called.request
    seen = called.result.record(subject)
    result = explained_by_constant(subject, request, called.result, seen)
    if result.is_explained and not result.is_right and not is_confirmed(subject, request, result):
        result = replace(result, variants=None)
    return Probe(subject, request, result, seen, called.masked)


def name_mistakes(probe: Probe, verdict: Verdict) -> Named | Verdict:
    """What is wrong in the values; the verdict where they are not explained, so that nothing else can be tried."""
    subject, request, result, masked = probe.subject, probe.request, probe.result, probe.masked
    text = _own_text(subject)
    if not result.is_explained:
        verdict.findings = list(changes_arguments(probe))
        if not verdict.findings:
            unknown = unknown_difference(subject, request, result, probe.seen)
            verdict.problem = beyond_the_formula(text, unknown)
            verdict.findings = [] if verdict.problem else [unknown]
        return verdict
    mistakes = named_mistakes(result, probe.seen, subject.source)
    if masked is not None and (_has_more(masked, result) if mistakes else not masked.is_right):
        mistakes = mistakes_with_mask(subject, request, masked)
    if not mistakes and masked is not None:
        inverted = inverted_mask(text, masked, masked.record(subject))
        mistakes = [inverted] if inverted else []
    return Named(probe, mistakes or mistakes_elsewhere(subject, request, result))


def add_behaviours(named: Named, verdict: Verdict) -> Verdict:
    """What values cannot show; beside mistakes only what has a name, because one error hides its consequences."""
    findings, extension = observe_behaviours(named.probe), named.probe.result.extension
    if named.mistakes:
        findings = [one for one in findings if one.name and one.name != "hard-coded sizes"]
    verdict.findings = [*named.mistakes, *findings]
    if extension is not None and extension.unknown and not verdict.mistakes:
        what = extension.what.removesuffix(".")
        verdict.problem = f"{what[0].lower()}{what[1:]}; {extension.unknown}. Everything else in it is right."
    return verdict


def _has_more(masked: Experiment, result: Experiment) -> bool:
    """Has it, with a mask, the mistakes that it has without one, and another?"""
    return set(result.names[0]) < set(masked.names[0] if masked.variants else ())


def _own_text(subject: Subject) -> str:
    """What the learner wrote of this class or function."""
    return own_text(subject.source, subject.described["name"])
