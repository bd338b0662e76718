"""Describing: what a layer was compared with, and what else is worth knowing about it, in words."""

from __future__ import annotations

from regard.school.check.compare.experiment import Experiment


def describe_task(result: Experiment) -> str:
    """What it was compared with, in words."""
    assert result.case is not None
    case = result.case
    direction = "causal " if case.causal else ""
    if case.qkv is not None:
        return f"{direction}scaled dot-product attention of q, k and v"
    if not case.projections:
        return f"{direction}attention without weights"
    if case.num_heads == 1:
        return f"{direction}self-attention, one head of {case.head_dim}"
    assignment = result.reading.assignment if result.reading else None
    kv = len(case.projections["W_key"].weight) // max(1, case.head_dim) if assignment else case.num_heads
    groups = f" that share {kv} key heads" if 0 < kv < case.num_heads and not case.reads_pieces else ""
    return f"{direction}multi-head attention, {case.num_heads} heads of {case.head_dim}{groups}"


def notes_on(result: Experiment, masked: Experiment | None) -> list[str]:
    assert result.case is not None
    assert result.call is not None
    notes = [] if result.norm is None else ["It normalises x before it projects it."]
    if result.extension is not None and not result.extension.unknown:
        notes.append(result.extension.what)
    if result.call.layout == "tokens first":
        notes.append("It takes x as (T, B, width).")
    if result.call.layout == "one text":
        notes.append("It takes one text, (T, width).")
    if masked is not None and masked.call is not None and masked.is_right:
        notes.append(f"Its mask: {masked.call.mask.partition(', (')[0]}.")
    return notes
