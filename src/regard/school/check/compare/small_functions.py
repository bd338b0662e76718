"""Small functions: softmax, causal_mask, split_heads and merge_heads, beside what is right and what people write."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import Case, merge, split
from regard.mistakes.search import MISTAKES, same
from regard.school.check.compare.call_forms import causal_mask, random_tensor
from regard.school.check.compare.constructor_arguments import HEADS, OTHERS, ProbeSizes
from regard.school.check.learner_code.protocol import Run
from regard.school.check.learner_code.subject import Subject, run_function
from regard.school.check.verdict import Example, Finding, Verdict, known, simulated
from regard.support.hidden_scores import HIDES_IN_EXAMPLE, is_hidden
from regard.support.vocabulary import HEAD_DIM

Found = tuple[list[Finding], list[str]]  # and notes
_ROWS_WHY = "The weights of one query are shares of its attention: every row sums to 1."
_CAUSAL = r"causal|subsequent|future|look|tri|autoreg|decoder"  # names of masks over the future
_SIZE = r"[tnls]|size|(seq_?|ctx_?|context_?)?len(gth)?|(num|n)_tokens|(block|context)_size"  # of a number of tokens
_SOFTMAX = "torch.softmax(scores, dim=-1)"
# What people write for softmax: what it computes, and what is said of it.
_WRONG: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "softmax over the queries": (lambda t: t.softmax(0), "It sums over the first axis: columns sum to 1, rows do not."),
    "softmax over all numbers": (lambda t: t.flatten().softmax(0).view_as(t), "All numbers together sum to 1."),
    "no normalisation": (torch.exp, "The exponentials are not divided by their sum."),
}
WRONG_SOFTMAX = {name: known(name, _ROWS_WHY, _SOFTMAX, "weights") for name in _WRONG}
OVERFLOW = known(
    "softmax overflows",
    "Subtracting the largest number first changes nothing, and keeps every exponential at most 1.",
    "exp(x - x.max(-1, keepdim=True).values)",
    "weights",
    is_warning=True,
)


class NotKnown(Exception):
    """What it takes or what it is for is not known, as of a mask of documents; the message says why."""


def check_small(subject: Subject, kind: str, sizes: ProbeSizes, seed: int = 0) -> Verdict:
    """Check one of the small functions at these sizes and, if it is right there, at others."""
    task, check = _KINDS[kind]
    verdict = Verdict(subject.described["name"], task)
    try:
        verdict.findings, verdict.notes = check(subject, sizes, seed)
    except NotKnown as why:
        verdict.problem = f"how it is called, or what it is for, is not known. {why}"
    if not verdict.is_right:
        return verdict
    try:
        elsewhere, _ = check(subject, OTHERS[0], seed)
    except NotKnown as why:
        elsewhere = [Finding("", str(why))]
    if any(not one.is_warning for one in elsewhere):
        says = f"It is right for {_sizes_text(kind, sizes)}, and not for {_sizes_text(kind, OTHERS[0])}. "
        verdict.notes = []
        verdict.findings = [
            one if one.name else replace(one, name="hard-coded sizes", says=says + one.says) for one in elsewhere
        ]
    return verdict


def _sizes_text(kind: str, sizes: ProbeSizes) -> str:
    heads = "" if kind in ("softmax", "mask") else f" and {sizes.num_heads} heads of {sizes.head_dim}"
    return f"{sizes.T} tokens{heads}"


def _run(subject: Subject, tensors: dict[str, Tensor], calls: Sequence[Sequence[Any]]) -> list[Run]:
    """Call it with each of these lists of arguments."""
    return run_function(subject, {"calls": [{"args": list(args)} for args in calls]}, tensors).runs


def _failed(subject: Subject, runs: Sequence[Run]) -> Found:
    if failed := next((run.failed for run in runs if run.failed), None):
        says = f"It fails: {failed.type}: {next(iter(failed.message.strip().splitlines()), '')}."
        is_called = any(re.fullmatch(_SIZE, p["name"].lower()) for p in subject.described["call"][:1])
        if not is_called and failed.type != "NameError" and "view size" not in failed.message:
            raise NotKnown(says)
        return [Finding("", says, line=failed.line)], []
    return [Finding("", "It returns no tensor; return the result.")], []


def _unknown(about: str, seen: Tensor, expected: Tensor) -> Found:
    says = f"It computes something else: its result has shape {tuple(seen.shape)}, expected {tuple(expected.shape)}."
    return [Finding("", says, step=about, example=_example(about, seen, expected))], []


def _other_mask(about: str, seen: Tensor, expected: Tensor) -> Found:
    raise NotKnown(f"The {about} is not the causal one.")


def _example(about: str, seen: Tensor, expected: Tensor) -> Example:
    rows = [t.reshape(-1, t.shape[-1])[:3, :6] if t.dim() else t.reshape(1, 1) for t in (seen, expected)]
    return Example(about, rows[0].to(torch.float64), rows[1].to(torch.float64))


def _softmax(subject: Subject, sizes: ProbeSizes, seed: int) -> Found:
    x = random_tensor(seed, sizes.num_heads, sizes.T) * 2
    arguments = subject.described["call"]
    more = [{"value": -1}] if len(arguments) > 1 and arguments[1]["required"] else []
    tensors = {"x": x, "row": x[0].clone(), "large": x[0] * 1000}
    runs = _run(subject, tensors, [[name, *more] for name in tensors])
    out, row, large = (None if run.failed or not run.outputs else run.outputs[0] for run in runs)
    if out is None and row is None:
        return _failed(subject, runs)
    expected = x.softmax(-1)
    if out is not None and not same(out, expected):
        return _wrong_softmax(x, out, expected)
    if out is None and row is not None and not same(row, expected[0]):
        return _unknown(f"softmax of {sizes.T} numbers", row, expected[0])
    if large is None or not bool(large.isfinite().all()):
        says = "For numbers around 1000 the result is NaN: exp(1000) is too large for any floating-point type."
        return [OVERFLOW.found(says)], []
    return [], []


def _wrong_softmax(x: Tensor, out: Tensor, expected: Tensor) -> Found:
    about = f"softmax of {len(x)} rows"
    for name, (act, says) in _WRONG.items():
        if same(out, act(x)):
            return [WRONG_SOFTMAX[name].found(says, example=Example(about, out, expected))], []
    return _unknown(about, out, expected)


def _mask(subject: Subject, sizes: ProbeSizes, seed: int) -> Found:
    T, right = sizes.T, causal_mask(sizes.T)
    size, x = {"value": T}, random_tensor(seed, sizes.B, T, sizes.width)
    runs = _run(subject, {}, [[size]])
    if runs[0].failed:
        runs += _run(subject, {"x": x}, [[size, size], [size, {"value": "cpu"}], ["x"]])
    run = next((one for one in runs if one.failed is None), None)
    if run is None:
        return _failed(subject, runs)
    unknown = _unknown if re.search(_CAUSAL, subject.described["name"].lower()) else _other_mask
    if not run.outputs:
        return unknown("mask", torch.zeros(1, 1), torch.ones(1, 1))
    seen = run.outputs[0].squeeze()
    if seen.shape != right.shape or not _is_mask(seen):
        return unknown(f"mask for {T} tokens", seen, right)
    is_added = not bool(seen.to(torch.float64).isfinite().all())
    shown = seen == 0 if is_added else seen != 0
    if _is_or_inverts(shown, right):
        meaning = "may attend" if torch.equal(shown, right) else "hidden"
        added = "Added to the scores: 0 = may attend, −∞ = hidden."
        return [], [added if is_added else f"True or 1 = {meaning}."]
    case = Case(torch.zeros(1, T, 1), causal=True)
    # A mask alone does not say whether True is hidden: the diagonal on the wrong side is the mistake of both readings.
    for mistake in sorted(MISTAKES, key=lambda one: not one.name.startswith("mask off by one")):
        if mistake.step == "see" and mistake.applies(case) and _is_or_inverts(shown, wrong := mistake.act(case)):
            example = Example(f"mask for {T} tokens, 1 = may attend", wrong.to(torch.float64), right.to(torch.float64))
            return [replace(simulated(mistake, case, example=example), fix="torch.ones(T, T).tril()")], []
    return unknown(f"mask for {T} tokens", seen, right)


def _is_or_inverts(shown: Tensor, mask: Tensor) -> bool:
    """Is it this mask, with True for what may be attended or for what is hidden?"""
    return torch.equal(shown, mask) or torch.equal(~shown, mask)


def _is_mask(seen: Tensor) -> bool:
    """Does it hold nothing but 0 and 1, or 0 and numbers that hide when they are added?"""
    if seen.is_complex():
        return False
    values = seen.to(torch.float64)
    return bool(((values == 0) | (values == 1)).all() or ((values == 0) | is_hidden(values, HIDES_IN_EXAMPLE)).all())


def _split(subject: Subject, sizes: ProbeSizes, seed: int) -> Found:
    return _compared(subject, sizes, random_tensor(seed, sizes.B, sizes.T, sizes.width), split)


def _merge(subject: Subject, sizes: ProbeSizes, seed: int) -> Found:
    context = random_tensor(seed, sizes.B, sizes.num_heads, sizes.T, sizes.head_dim)
    return _compared(subject, sizes, context, merge)


def _compared(subject: Subject, sizes: ProbeSizes, x: Tensor, right: Callable[[Tensor, Case], Tensor]) -> Found:
    """Of a function of one tensor, and of numbers such as num_heads or head_dim: the mistake that gives its result."""
    case = Case(torch.zeros(sizes.B, sizes.T, sizes.width), num_heads=sizes.num_heads)
    values = {**dict.fromkeys(HEADS, sizes.num_heads), **dict.fromkeys(HEAD_DIM, sizes.head_dim)}
    more = [{"value": values.get(p["name"], sizes.num_heads)} for p in subject.described["call"][1:] if p["required"]]
    runs = _run(subject, {"x": x, "text": x[0].clone()}, [["x", *more], ["text", *more]])
    expected, step = right(x, case), right.__name__
    if not runs[0].outputs and runs[1].outputs and same(runs[1].outputs[0], expected[0]):
        return [], ["It takes one text."]
    if runs[0].failed or not runs[0].outputs:
        return _failed(subject, runs[:1])
    seen = runs[0].outputs[0]
    if same(seen, expected):
        return [], []
    if step == "merge" and same(seen, x.flatten(2)):
        return [], ["It takes (B, T, H, D): put the tokens before the heads first, by transpose(1, 2)."]
    if step == "split" and same(seen, expected.transpose(1, 2)):
        return [], ["The result is (B, T, H, D): put the heads before the tokens later, by transpose(1, 2)."]
    for mistake in MISTAKES:
        if mistake.step == step and mistake.applies(case) and same(mistake.act(x, case), seen):
            example = _example(f"{mistake.shows}, the first 3 rows", seen, expected)
            return [simulated(mistake, case, example=example)], []
    return _unknown(step, seen, expected)


_KINDS = {
    "softmax": ("softmax over the last axis", _softmax),
    "mask": ("a causal mask", _mask),
    "split": ("splitting (B, T, H·D) into heads", _split),
    "merge": ("joining heads to (B, T, H·D)", _merge),
}
