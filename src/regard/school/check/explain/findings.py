"""Findings: what an experiment showed, in words: the task, notes, mistakes by name, and differences without one."""

from __future__ import annotations

from regard.school.check.compare.attempts import other_attempts
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.divergence import latest_divergence
from regard.school.check.explain.examples import counterexample, tiny_example
from regard.school.check.explain.exceptions import explain_crash
from regard.school.check.explain.mistake_lines import likeliest, line_of
from regard.school.check.verdict import Finding, simulated


def describe_task(result: Experiment) -> str:
    """What it was compared with, in words."""
    case = result.case
    direction = "causal " if case.causal else ""
    if case.qkv is not None:
        return f"{direction}scaled dot-product attention of q, k and v"
    if not case.projections:
        return f"{direction}attention without weights"
    if case.num_heads == 1:
        return f"{direction}self-attention, one head of {case.head_dim}"
    kv = len(case.projections["W_key"].weight) // max(1, case.head_dim)
    groups = f" that share {kv} key heads" if 0 < kv < case.num_heads and not case.reads_pieces else ""
    return f"{direction}multi-head attention, {case.num_heads} heads of {case.head_dim}{groups}"


def notes_on(result: Experiment) -> list[str]:
    """What else is worth knowing about a layer."""
    notes = [] if result.norm is None else ["It normalises x before it projects it."]
    if result.extension is not None and not result.extension.unknown:
        notes.append(result.extension.what)
    if result.call.layout == "tokens first":
        notes.append("It takes x as (T, B, width).")
    if result.call.layout == "one text":
        notes.append("It takes one text, (T, width).")
    if result.masked is not None and result.masked.is_right:
        notes.append(f"Its mask: {result.masked.call.mask.partition(', (')[0]}.")
    return notes


def mistakes_in(result: Experiment, called: str = "") -> list[Finding]:
    """The mistakes of the smallest explanation; a difference without a name where there is none."""
    if not result.is_explained:
        return [unknown_difference(result, called)]
    variant = likeliest(result.variants or [()], result.seen)
    return [
        simulated(one, result.case, line_of(one, result, variant), tiny_example(one, variant, result.case))
        for one in variant
    ]


def mistakes_elsewhere(result: Experiment) -> list[Finding]:
    """What goes wrong at other sizes only."""
    others = list(other_attempts(result))
    if any(isinstance(other, Experiment) and other.is_right for other in others):
        return []
    for other in others:
        if other.failed is not None:
            return [explain_crash(other)]
        if isinstance(other, Experiment):
            return mistakes_in(other)
    return []


def unknown_difference(result: Experiment, called: str = "") -> Finding:
    """A difference that no known mistake explains: where it begins, and the smallest example that shows it."""
    where = latest_divergence(result.cases, result.seen)
    begins = f"The first step that differs: {where.step}."
    if where.is_changed:
        begins = f"The {where.step} are right at first, and then changed."
    elif where.before:
        begins = f"Everything up to {where.before} is right; the first step that differs: {where.step}."
    says = f"It computes something else{called}, and no known mistake explains it. {begins}"
    return Finding("", says, step=where.step, line=where.line, example=counterexample(result))
