"""Caching: a layer that keeps keys and values must compute the same for a text in parts as for the whole text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import Case, Formula
from regard.mistakes.search import same
from regard.school.check.locating import hiding_line
from regard.school.check.subject import Subject
from regard.school.check.values import Experiment
from regard.school.check.verdict import Finding
from regard.support import vocabulary as words

CACHES = (*words.CACHES, *words.CACHES_TOO)
_BY_TOKEN = ("project", "share", "scale", "output")  # mistakes in these are the same for a text in parts
FLAGS = ("use_cache", "return_cache", "return_kv")


def cached_like_uncached(subject: Subject, result: Experiment) -> Iterator[Finding]:
    """Is the output for the last tokens the same when the tokens before them come from a cache?"""
    names = [p["name"] for p in subject.described["call"]]
    cache = next((n for n in names if n in CACHES), None)
    flags = {n: {"value": True} for n in names if n in FLAGS}
    keeps = any("reset" in name and "cache" in name for name in result.observation.contents.get("methods", ()))
    if result.case is None or not result.case.causal or not (cache or (flags and keeps)):
        return
    if (
        result.variants is None
        or result.extension is not None
        or any(one.step not in _BY_TOKEN for one in result.variants[0])
    ):
        return
    for new in (1, 2):
        finding = _try(subject, result, cache, flags, new)
        if finding is not None:
            yield finding
            return


def _try(subject: Subject, result: Experiment, cache: str | None, flags: Mapping[str, Any], new: int) -> Finding | None:
    """Run a text in two parts, the second of so many tokens."""
    assert result.case is not None
    assert result.variants is not None
    case, formula = result.case, Formula(**{one.step: one.act for one in result.variants[0]})
    x, T = result.tensors["x"], result.sizes.T
    tensors = {"start": x[:, : T - new].clone(), "rest": x[:, T - new :].clone()}
    later = {cache: {"cache": -1}} if cache is not None else {}
    calls = [{"args": ["start"], "kwargs": dict(flags)}, {"args": ["rest"], "kwargs": {**flags, **later}}]
    seen = subject.run(result.job(calls=calls), {**result.tensors, **tensors})
    if cache is not None and seen.runs and len(seen.runs[0].outputs) < 3:
        return None  # the output, keys and values: what else it returns is no cache that could be passed on
    words = f"the last {'token' if new == 1 else f'{new} tokens'}"
    failed = next((run.failed for run in seen.runs if run.failed), None)
    if failed is not None:
        return Finding("", f"With a cache it fails at {words}: {failed.message.splitlines()[0]}.", line=failed.line)
    out = next((t for t in seen.runs[-1].outputs if t.dim() == 3 and t.shape[:2] == (len(x), new)), None)
    if out is None or same(out.to(torch.float64), formula(case)[:, T - new :]):
        return None
    why = f"After {T - new} tokens from the cache, row 0 of the scores belongs to token {T - new}, not to token 0."
    fix = f"scores.masked_fill(self.mask[S - T : S, :S], -torch.inf)  # S keys, T new tokens; here {T} and {new}"
    for visible in _wrong_masks(case, T, new):
        if same(out.to(torch.float64), _with_mask(formula, case, visible)[:, T - new :]):
            says = f"With a cache, {words} may see the wrong keys: the mask does not begin where the cache ends."
            line = hiding_line(subject.run(result.job(calls=calls[:1], record=True), {**result.tensors, **tensors}))
            return Finding("wrong causal offset with a cache", says, why, fix, "mask", line, is_warning=new > 1)
    says = f"With a cache, the output for {words} is another than without one."
    return Finding("", says, step="keys")


def _wrong_masks(case: Case, T: int, new: int) -> Iterator[Tensor]:
    """Masks of the last tokens that people write: of the first rows, of the new keys only, or none."""
    right = torch.ones(T, T, dtype=torch.bool).tril()
    for rows in (right[:new], torch.ones(new, T, dtype=torch.bool), right[T - new :].roll(-1, 0)):
        wrong = right.clone()
        wrong[T - new :] = rows
        if not torch.equal(wrong, right):
            yield wrong


def _with_mask(formula: Formula, case: Case, visible: Tensor) -> Tensor:
    return replace(formula, see=lambda case: visible)(case)
