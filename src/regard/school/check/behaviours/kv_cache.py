"""A cache of keys and values: a layer must compute the same for a text in parts as for the whole text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import Case, Formula
from regard.mistakes.search import same
from regard.school.check.compare.call_forms import causal_mask
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import hiding_line
from regard.school.check.learner_code.protocol import CallJob
from regard.school.check.verdict import Finding, known
from regard.support import vocabulary as words

CACHES = (*words.CACHES, *words.CACHES_TOO)
_BY_TOKEN = ("project", "share", "scale", "output")  # mistakes in these are the same for a text in parts
FLAGS = ("use_cache", "return_cache", "return_kv")
WRONG_OFFSET = known(
    "wrong causal offset with a cache",
    "Row 0 of the scores belongs to the first token after the cache, not to token 0.",
    "scores.masked_fill(self.mask[S - T : S, :S], -torch.inf)  # S keys, T new tokens",
    "mask",
)


def cached_like_uncached(result: Experiment) -> Iterator[Finding]:
    """Is the output for the last tokens the same when the tokens before them come from a cache?"""
    names = [p["name"] for p in result.subject.described["call"]]
    cache = next((n for n in names if n in CACHES), None)
    flags = {n: {"value": True} for n in names if n in FLAGS}
    keeps = any("reset" in name and "cache" in name for name in result.observation.contents.get("methods", ()))
    if not result.case.causal or not (cache or (flags and keeps)):
        return
    if result.extension is not None or any(one.step not in _BY_TOKEN for one in result.first):
        return
    for new in (1, 2):
        if finding := _in_two_parts(result, cache, flags, new):
            yield finding
            return


def _in_two_parts(result: Experiment, cache: str | None, flags: Mapping[str, Any], new: int) -> Finding | None:
    """Run a text in two parts, the second of so many tokens."""
    x, T = result.tensors["x"], result.sizes.T
    tensors = {"start": x[:, : T - new].clone(), "rest": x[:, T - new :].clone()}
    later = {cache: {"cache": -1}} if cache is not None else {}
    start: CallJob = {"args": ["start"], "kwargs": dict(flags)}
    seen = result.run(1, tensors, calls=[start, {"args": ["rest"], "kwargs": {**flags, **later}}])
    if cache is not None and seen.runs and len(seen.runs[0].outputs) < 3:
        return None  # the output, keys and values: what else it returns is no cache that could be passed on
    words = f"the last {'token' if new == 1 else f'{new} tokens'}"
    if failed := next((run.failed for run in seen.runs if run.failed), None):
        return Finding("", f"With a cache it fails at {words}: {failed.message.splitlines()[0]}.", line=failed.line)
    outs = [t for t in seen.runs[-1].outputs if t.dim() == 3 and t.shape[:2] == (len(x), new)]
    formula = Formula(**{one.step: one.act for one in result.first})

    def is_last_of(case: Case) -> bool:
        return same(outs[0].to(torch.float64), formula(case)[:, T - new :])

    if not outs or is_last_of(result.case):
        return None
    for visible in _wrong_masks(T, new):
        if is_last_of(replace(result.case, mask=visible)):
            says = f"With a cache, {words} may see the wrong keys: the mask does not begin where the cache ends."
            line = hiding_line(result.run(1, tensors, calls=[start], record=True))
            first = T - new
            why = f"After {first} tokens from the cache, row 0 of the scores belongs to token {first}, not to token 0."
            fix = f"{WRONG_OFFSET.fix}; here {T} and {new}"
            return WRONG_OFFSET.found(says, line, why=why, fix=fix, is_warning=new > 1)
    return Finding("", f"With a cache, the output for {words} is another than without one.", step="keys")


def _wrong_masks(T: int, new: int) -> Iterator[Tensor]:
    """Masks of the last tokens that people write: of the first rows, of the new keys only, or none."""
    right = causal_mask(T)
    for rows in (right[:new], torch.ones(new, T, dtype=torch.bool), right[T - new :].roll(-1, 0)):
        wrong = right.clone()
        wrong[T - new :] = rows
        if not torch.equal(wrong, right):
            yield wrong
