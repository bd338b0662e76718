"""A cache of keys and values: a layer must compute the same for a text in parts as for the whole text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.mistake import formula_with
from regard.mistakes.search import same
from regard.school.check.behaviours.probing import CLOSE, is_refused, one_line
from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.compare.call_forms import causal_mask
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import hiding_line
from regard.school.check.learner_code.protocol import CallJob, Run
from regard.school.check.verdict import Finding, known
from regard.support import vocabulary as words

CACHES = (*words.CACHES, *words.CACHES_TOO)
_BY_TOKEN = ("project", "share", "scale", "output")  # mistakes in these are the same for a text in parts
Way = Callable[[int], dict[str, Any]]  # what is passed with a part of a text, after so many tokens
_NO_CACHE = Finding("", "")  # it cannot be called in this way
FLAGS = ("use_cache", "return_cache", "return_kv")
WRONG_OFFSET = known(
    "wrong causal offset with a cache",
    "Row 0 of the scores belongs to the first token after the cache, not to token 0.",
    "scores.masked_fill(self.mask[S - T : S, :S], -torch.inf)  # S keys, T new tokens",
    "mask",
)
WRONG_CACHE = known(
    "wrong with a cache",
    "Keys and values of the tokens before are kept in their order, and new tokens get the positions after them.",
    "k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)",
    "keys",
)


@behaviour("cache")
def cached_like_uncached(result: Experiment) -> Iterator[Finding]:
    """Is the output for the last tokens the same when the tokens before them come from a cache?"""
    names = [p["name"] for p in result.subject.described["call"]]
    ways = list(_ways(result, names))
    if not result.case.causal or not ways:
        raise NotOffered
    if any(one.step not in _BY_TOKEN for one in result.first) or result.call.layout != "batch first":
        raise NotChecked("where the whole text is wrong")
    for new in (1, 2):
        findings = [_in_two_parts(result, way, new) for way in ways]
        if all(one is _NO_CACHE for one in findings):
            raise NotChecked("how it is passed is not known")
        if finding := next((one for one in findings if one is not None and one is not _NO_CACHE), None):
            yield finding
            return


def _ways(result: Experiment, names: Sequence[str]) -> Iterator[Way]:
    """How a text can be passed in two parts: what is passed with each of them, after so many tokens."""
    flags = {n: {"value": True} for n in names if n in FLAGS}
    methods = result.observation.contents.get("methods", ())
    keeps = any(re.match(r"(reset|clear)(?!_param)", name) for name in methods)
    if starts := [name for name in names if name in words.STARTS]:
        yield lambda tokens: {**flags, starts[0]: {"value": tokens}}
    elif caches := [name for name in names if name in CACHES]:
        yield lambda tokens: {**flags, **({caches[0]: {"cache": -1}} if tokens else {})}
        yield lambda tokens: {**flags, caches[0]: {"list": "cache"}}
    elif keeps:
        yield lambda tokens: flags


def _in_two_parts(result: Experiment, way: Way, new: int) -> Finding | None:
    """Run a text in two parts, the second of so many tokens, beside the whole text."""
    x, T = result.tensors["x"], result.sizes.T
    first = T - new
    tensors = {"start": x[:, :first].clone(), "rest": x[:, first:].clone(), "other": x[:, :first].flip(0, 1)}
    calls: list[CallJob] = [result.call.as_json()]
    for start in ("start", "other"):
        calls += [_part(result, start, way(0), fresh=True), _part(result, "rest", way(first), fresh=False)]
    runs = result.run(1, tensors, calls=calls).runs
    told = f"the last {'token' if new == 1 else f'{new} tokens'}"
    is_passed = any("cache" in one for one in way(first).values())
    if len(runs) < len(calls) or runs[0].failed or runs[1].failed or (is_passed and len(runs[1].outputs) < 3):
        return _NO_CACHE  # the output, keys and values: what else it returns is no cache that could be passed on
    if are_passed_on(way(first), runs[1], runs[2]):
        return _NO_CACHE
    if failed := runs[2].failed:
        says = f"With a cache it fails at {told}: {one_line(failed)}."
        return Finding("", says, line=failed.line) if is_passed and not is_refused(result, failed) else _NO_CACHE
    finding = _compared(runs, first, told, is_passed)
    if finding is not WRONG_CACHE:
        return finding
    return _wrong_part(result, runs[2].outputs, new, told, calls[1], tensors)


def are_passed_on(given: Iterable[str], before: Run, after: Run) -> bool:
    """Are keys and values those of another layer, used in place of its own, as no name of a cache says?"""
    is_named = any(name in words.CACHES for name in given)
    pairs = list(zip(before.outputs[1:], after.outputs[1:], strict=False))
    return not is_named and bool(pairs) and all(torch.equal(a, b) for a, b in pairs)


def _compared(runs: Sequence[Run], first: int, told: str, is_passed: bool) -> Finding | None:
    """The last tokens beside those of the whole text; WRONG_CACHE where they are others."""
    whole, rest, otherwise = (next((t for t in run.outputs if t.dim() == 3), None) for run in runs[::2])
    if whole is None or rest is None or rest.shape != whole[:, first:].shape:
        return _NO_CACHE
    if otherwise is not None and same(rest, otherwise, CLOSE):  # the tokens before are not seen at all
        return WRONG_CACHE.found(f"The output for {told} does not depend on the cache.") if is_passed else None
    return None if same(rest, whole[:, first:], CLOSE) else WRONG_CACHE


def _part(result: Experiment, name: str, kwargs: dict[str, Any], fresh: bool) -> CallJob:
    """The call with a part of the text in the place of x."""
    args = [name if one == "x" else one for one in result.call.args]
    return {"args": args, "kwargs": {**result.call.kwargs, **kwargs}, "fresh": fresh}


def _wrong_part(
    result: Experiment, outs: Sequence[Tensor], new: int, told: str, start: CallJob, tensors: dict[str, Tensor]
) -> Finding:
    """What is wrong with the last tokens: the mask, where the formula says so."""
    T, first, out = result.sizes.T, result.sizes.T - new, next(t for t in outs if t.dim() == 3).to(torch.float64)
    formula = formula_with(result.first)
    for visible in _wrong_masks(T, new) if result.extension is None else ():
        if same(out, formula(replace(result.case, mask=visible))[:, first:]):
            says = f"With a cache, {told} may see the wrong keys: the mask does not begin where the cache ends."
            line = hiding_line(result.run(1, tensors, calls=[start], record=True))
            why = f"After {first} tokens from the cache, row 0 of the scores belongs to token {first}, not to token 0."
            fix = f"{WRONG_OFFSET.fix}; here {T} and {new}"
            return WRONG_OFFSET.found(
                says, line, why=why, fix=fix, is_warning=new > 1 and not _takes_several(result.text)
            )
    return WRONG_CACHE.found(f"With a cache, the output for {told} is another than without one.")


def _takes_several(text: str) -> bool:
    """Does the code say that more than one new token may be passed?"""
    return re.search(r"(?i)chunk|any length|several tokens", text) is not None


def _wrong_masks(T: int, new: int) -> Iterator[Tensor]:
    """Masks of the last tokens that people write: of the first rows, of the new keys only, or none."""
    right = causal_mask(T)
    for rows in (right[:new], torch.ones(new, T, dtype=torch.bool), right[T - new :].roll(-1, 0)):
        wrong = right.clone()
        wrong[T - new :] = rows
        if not torch.equal(wrong, right):
            yield wrong
