"""check: is this layer right? If not, the name of the mistake, its line, and numbers to follow.

It is built and called at some sizes, and called with a mask where it takes one; then mistakes are sought that give the
same numbers, here and at other sizes; and then what values cannot show is tried.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from regard.school.check.behaviours.behaviours import explain_unknown, observe_behaviours
from regard.school.check.behaviours.padding import hides_padding
from regard.school.check.blocks.lost_parts import ATTENTION_LOST
from regard.school.check.blocks.wiring import Wiring, check_wiring
from regard.school.check.compare import attempts
from regard.school.check.compare.experiment import Attempt, Experiment, Extension
from regard.school.check.compare.small_functions import check_small
from regard.school.check.explain import findings
from regard.school.check.explain.exceptions import explain_crash
from regard.school.check.explain.lines_not_run import lines_not_run
from regard.school.check.explain.mechanisms import announced, other_mechanism, without_comparison
from regard.school.check.explain.plainness import beyond_the_formula, doubt_on_call, extra, unknown_pattern
from regard.school.check.explain.run_findings import wrong_parts
from regard.school.check.learner_code.subject import (
    InsideSubject,
    LocalSubject,
    NotHere,
    Subject,
    is_function,
    never_passed,
)
from regard.school.check.learner_code.text_hints import is_batch_first, is_tokens_first, says_tokens_first, small_kind
from regard.school.check.request import IN_PYTHON, Request
from regard.school.check.verdict import Verdict, known, with_code
from regard.support.torch_threads import limit_threads
from regard.traces.failures import describe_argument

RESIDUAL_INSIDE = known(
    "residual inside the layer",
    "The block around the layer adds x; done in both places, it is added twice.",
    "return self.out_proj(concat)",
    "out",
)
_CONSEQUENCES = ("hard-coded sizes", "its own defaults do not fit", "head width does not fit")  # of wrong values


def check(
    target: Any,
    *,
    causal: bool | None = None,
    arguments: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    solution: bool = False,
) -> Verdict:
    """Check an attention layer that somebody wrote: right, or which mistake it makes, and where.

    >>> class Attention(torch.nn.Module):
    ...     def __init__(self, d_in, d_out):
    ...         super().__init__()
    ...         self.W_q, self.W_k, self.W_v = (torch.nn.Linear(d_in, d_out) for _ in range(3))
    ...     def forward(self, x):
    ...         return torch.softmax(self.W_q(x) @ self.W_k(x).mT, dim=-1) @ self.W_v(x)
    >>> check(Attention).mistakes[0].name
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
    try:
        with limit_threads(1):  # much quicker for small tensors
            wiring = None if is_function(subject) else check_wiring(subject, request)
            inside = wiring.attention if wiring is not None else None
            judged = subject if inside is None else InsideSubject(subject, inside)
            verdict = _check_attention(judged, request)
    except NotHere as missing:
        return Verdict(subject.described["name"], "", file=subject.file, problem=f"it needs {missing}")
    if wiring is not None:
        _add_wiring(verdict, wiring)
    if verdict.is_right and (never := lines_not_run(subject.source, subject.ran)):
        verdict.not_checked.append(never)
    if verdict.is_right and (names := never_passed(judged)):
        verdict.not_checked.append(f"{', '.join(names)}: no experiment passed {'it' if len(names) == 1 else 'them'}")
    verdict.file = subject.file
    verdict.findings = with_code(verdict.findings, subject.source)
    return verdict


def _add_wiring(verdict: Verdict, wiring: Wiring) -> None:
    """The verdict on an attention with what was found around it."""
    named = [one for one in verdict.findings if one.name]
    if wiring.attention is None and len([one for one in named if not one.is_warning]) == 1:  # which explains the loss
        wiring.findings = [one for one in wiring.findings if one.name != ATTENTION_LOST.name]
    elif wiring.attention is None and any(one.name == ATTENTION_LOST.name for one in wiring.findings):
        named = [one for one in named if one.is_warning]  # it explains more than two others do
    if wiring.findings:  # which explain what has no name
        verdict.findings, verdict.problem = [*named, *wiring.findings], ""
    if wiring.note:
        verdict.not_checked.append("the wiring around it")
        verdict.notes.append(wiring.note)


def _check_attention(subject: Subject, request: Request) -> Verdict:
    name, arguments = subject.described["name"], [p["name"] for p in subject.described["call"]]
    if kind := is_function(subject) and small_kind(name, arguments):
        return check_small(subject, kind, request.probes[0], request.seed)
    attempt = attempts.first_attempt(subject, request)
    verdict = Verdict(name, "an attention layer", problem=attempt.problem, sizes=attempt.built.sizes)
    if attempt.built.guessed and not attempt.is_explained and not attempt.problem:  # the guess may be wrong
        verdict.problem = request.ask_for_arguments(attempt.built.guessed)
    if verdict.problem and (found := findings.shown_by_code(attempt)):
        verdict.problem, verdict.findings = "", found
        return verdict
    if verdict.problem:
        return verdict
    if attempt.failed is not None:
        return _crashed(attempt, verdict)
    return _compared(attempt, verdict) if isinstance(attempt, Experiment) else verdict


def _crashed(attempt: Attempt, verdict: Verdict) -> Verdict:
    """The verdict on a layer that failed: a mistake with a name, or as it is at sizes at which it runs."""
    subject = attempt.subject
    verdict.findings = findings.shown_by_code(attempt) or [explain_crash(attempt)]
    other = other_mechanism(subject.source, verdict.name, attempt.observation) or without_comparison(attempt)
    if other:
        verdict.problem, verdict.findings = f"another mechanism: {other}; not checked", []
        return verdict
    if verdict.mistakes[0].name:
        return _compared(attempt, verdict) if isinstance(attempt, Experiment) else verdict
    if (even := attempts.at_even_sizes(subject, attempt.request)) is not None:
        return _compared(even, verdict)
    what = extra(attempt)
    reason = (
        f"it has {what} beside the formula, and" if what else doubt_on_call(attempt) and f"{doubt_on_call(attempt)}: it"
    )
    if reason:
        verdict.problem, verdict.findings = f"{reason} could not be called: {verdict.mistakes[0].says}", []
    return verdict


def _compared(result: Experiment, verdict: Verdict) -> Verdict:
    """The verdict on a layer that gave an output to compare with the formula."""
    if negative := findings.of_negative_numbers(result):  # first: what NaN equals, or not, is chance
        verdict.task, verdict.findings = findings.describe_task(result), [negative]
        return verdict
    if result.call.layout == "tokens first" and not is_tokens_first(result.text, result.observation.contents):
        verdict.task, verdict.findings = findings.describe_task(result), [findings.attends_over_the_batch(result)]
        return verdict
    first = result.subject.described["call"][0]["name"]
    if result.call.layout == "batch first" and result.is_right and says_tokens_first(result.text, first):
        verdict.task, verdict.findings = findings.describe_task(result), [findings.takes_tokens_for_texts(result)]
        return verdict
    if (
        result.call.layout == "one text"
        and is_batch_first(result.text)
        and (failed := attempts.fails_for_a_batch(result))
    ):
        verdict.findings = [explain_crash(failed)]
        return verdict
    return _explained(result, verdict)


def _explained(result: Experiment, verdict: Verdict) -> Verdict:
    """The verdict on what it computes, with a mask and without one, here and at other sizes."""
    masked = attempts.attempt_with_mask(result)
    if masked is not None and masked.is_explained and result.names and "no causal mask" in result.names[0]:
        result, masked = masked, None  # it hides what its caller says
    result = replace(attempts.with_constant_scale(result), masked=None if hides_padding(result, masked) else masked)
    if result.is_explained and not result.is_right and not attempts.is_confirmed(result):
        result = replace(result, variants=None)
    verdict.task, verdict.notes = findings.describe_task(result), findings.notes_on(result)
    if result.is_explained:
        return _with_behaviours(result, verdict)
    verdict.findings = findings.shown_by_code(result) or wrong_parts(result) or explain_unknown(result)
    return verdict if verdict.findings else _unexplained(result, verdict)


def _unexplained(result: Experiment, verdict: Verdict) -> Verdict:
    """The verdict where nothing explains the difference: another mechanism, a guess, or an unknown mistake."""
    unknown = findings.unknown_difference(result)
    other = other_mechanism(result.subject.source, verdict.name, result.seen)
    verdict.problem = f"another mechanism: {other}; not checked" if other else ""
    verdict.problem = verdict.problem or beyond_the_formula(result, unknown) or unknown_pattern(result, unknown)
    verdict.findings = [] if verdict.problem else [unknown]
    return verdict


def _with_behaviours(result: Experiment, verdict: Verdict) -> Verdict:
    """What is wrong in the values, and what they cannot show; one error hides its consequences."""
    mistakes, observed, extension = findings.mistakes_in_values(result), observe_behaviours(result), result.extension
    others = observed.findings
    if any(unknown_pattern(result, one) for one in mistakes):
        verdict.problem = unknown_pattern(result, mistakes[0])
        return verdict
    if mistakes:
        others = [one for one in others if one.name and one.name not in _CONSEQUENCES]
    verdict.findings = [*mistakes, *others]
    verdict.checked, verdict.not_checked = ["values", *observed.checked], observed.not_checked
    said = announced(result.first, result.subject.source, verdict.name)
    never = [one.name for one in result.first if not one.announced]  # such as in splitting heads: these nobody means
    if said and never:
        meant = [one.name for one in result.first if one.name not in never]
        verdict.findings = [one for one in verdict.findings if one.name not in meant]
    elif said:
        verdict.problem = f"another mechanism, as it says: {said}; not checked"
    if extension is not None:
        _note_extension(result, verdict, extension)
    return verdict


def _note_extension(result: Experiment, verdict: Verdict, extension: Extension) -> None:
    """What the layer is beside the formula: a mistake where nothing else is asked for, or doubtful."""
    if result.request.plain and extension.what.startswith("It adds x to its output"):
        verdict.findings.insert(
            0, RESIDUAL_INSIDE.found("The layer adds x to its output; it returns the output alone.")
        )
    elif extension.unknown and not verdict.mistakes:
        what = extension.what.removesuffix(".")
        verdict.problem = f"{what[0].lower()}{what[1:]}; {extension.unknown}. Everything else in it is right."
