"""Small functions: softmax, causal_mask, split_heads and merge_heads, each beside what is right and what people write."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import Case, merge, split
from regard.mistakes.masking import MISTAKES as MASKING
from regard.mistakes.merging import MISTAKES as MERGING
from regard.mistakes.mistake import Mistake
from regard.mistakes.search import same
from regard.mistakes.splitting import MISTAKES as SPLITTING
from regard.school.check.building import HEADS, OTHERS, ProbeSizes
from regard.school.check.subject import Run, Subject
from regard.school.check.verdict import Example, Finding, Verdict
from regard.support.hidden_scores import HIDES_IN_EXAMPLE, is_hidden
from regard.support.vocabulary import HEAD_DIM


def kind_of(name: str, arguments: Sequence[str]) -> str:
    """softmax, mask, split or merge, by the name of a function; "" for others."""
    name = name.lower()
    if "softmax" in name and len(arguments) in (1, 2):
        return "softmax"
    if "mask" in name and 1 <= len(arguments) <= 2 and not re.search(r"apply|fill|attention|softmax", name):
        return "mask"
    if re.search(r"(split|separate|divide|transpose).*head|head.*split", name):
        return "split"
    if re.search(r"(merge|combine|join|concat|unsplit).*head|head.*(merge|concat)", name):
        return "merge"
    return ""


def check_small(subject: Subject, kind: str, sizes: ProbeSizes, seed: int = 0) -> Verdict:
    """Check one of the small functions at these sizes and, if it is right there, at others."""
    check = {"softmax": _softmax, "mask": _mask, "split": _split, "merge": _merge}[kind]
    verdict = check(subject, sizes, seed)
    if not verdict.is_right:
        return verdict
    other = check(subject, OTHERS[0], seed)
    if other.is_right:
        return verdict
    says = f"It is right for {_sizes_text(kind, sizes)}, and not for {_sizes_text(kind, OTHERS[0])}. "
    other.findings = [
        one if one.name else replace(one, name="hard-coded sizes", says=says + one.says) for one in other.findings
    ]
    return other


def _sizes_text(kind: str, sizes: ProbeSizes) -> str:
    heads = "" if kind in ("softmax", "mask") else f" and {sizes.num_heads} heads of {sizes.head_dim}"
    return f"{sizes.T} tokens{heads}"


def _random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _run(subject: Subject, tensors: dict[str, Tensor], calls: Sequence[Sequence[Any]]) -> list[Run]:
    """Call it with each of these lists of arguments; with arrays where it does not take tensors."""
    job = {"calls": [{"args": list(args)} for args in calls]}
    seen = subject.run(job, tensors)
    if all(run.failed for run in seen.runs):
        again = subject.run({**job, "numpy": True}, tensors)
        seen = seen if all(run.failed for run in again.runs) else again
    return seen.runs


def _verdict(subject: Subject, task: str) -> Verdict:
    return Verdict(subject.described["name"], task)


def _failed(verdict: Verdict, runs: Sequence[Run]) -> Verdict:
    failed = next(run.failed for run in runs if run.failed)
    message = failed.message.strip().split("\n")[0]
    verdict.findings = [Finding("", f"It fails: {failed.type}: {message}.", line=failed.line)]
    return verdict


def _unknown(verdict: Verdict, about: str, seen: Tensor, expected: Tensor) -> Verdict:
    flat = [t.reshape(-1, t.shape[-1])[:3, :6] if t.dim() else t.reshape(1, 1) for t in (seen, expected)]
    verdict.findings = [
        Finding(
            "",
            f"It computes something else: its result has shape {tuple(seen.shape)}, expected {tuple(expected.shape)}.",
            step=about,
            example=Example(about, flat[0].to(torch.float64), flat[1].to(torch.float64)),
        )
    ]
    return verdict


def _softmax(subject: Subject, sizes: ProbeSizes, seed: int) -> Verdict:
    verdict = _verdict(subject, "softmax over the last axis")
    x = _random(seed, sizes.num_heads, sizes.T) * 2
    second = len(subject.described["call"]) > 1
    more = [{"value": -1}] if second and subject.described["call"][1]["required"] else []
    runs = _run(
        subject, {"x": x, "row": x[0].clone(), "large": x[0] * 1000}, [["x", *more], ["row", *more], ["large", *more]]
    )
    outs = [None if run.failed or not run.outputs else run.outputs[0] for run in runs]
    if outs[0] is None and outs[1] is None:
        return _failed(verdict, runs)
    expected = x.softmax(-1)
    wrong: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
        "softmax over the queries": (
            lambda t: t.softmax(0),
            "It sums over the first axis: columns sum to 1, rows do not.",
        ),
        "softmax over all numbers": (lambda t: t.flatten().softmax(0).view_as(t), "All numbers together sum to 1."),
        "no normalisation": (lambda t: t.exp(), "The exponentials are not divided by their sum."),
    }
    if outs[0] is not None and not same(outs[0], expected):
        for name, (act, says) in wrong.items():
            if same(outs[0], act(x)):
                example = Example(f"softmax of {len(x)} rows", outs[0], expected)
                why = "The weights of one query are shares of its attention: every row sums to 1."
                verdict.findings = [
                    Finding(name, says, why, "torch.softmax(scores, dim=-1)", "weights", example=example)
                ]
                return verdict
        return _unknown(verdict, f"softmax of {len(x)} rows", outs[0], expected)
    if outs[0] is None and outs[1] is not None and not same(outs[1], expected[0]):
        return _unknown(verdict, f"softmax of {sizes.T} numbers", outs[1], expected[0])
    if outs[2] is None or not bool(outs[2].isfinite().all()):
        verdict.findings = [
            Finding(
                "softmax overflows",
                "For numbers around 1000 the result is NaN: exp(1000) is too large for any floating-point type.",
                "Subtracting the largest number first changes nothing, and keeps every exponential at most 1.",
                "exp(x - x.max(-1, keepdim=True).values)",
                "weights",
                is_warning=True,
            )
        ]
    return verdict


def _mask(subject: Subject, sizes: ProbeSizes, seed: int) -> Verdict:
    verdict, T = _verdict(subject, "a causal mask"), sizes.T
    runs = _run(subject, {}, [[{"value": T}]])
    if runs[0].failed or not runs[0].outputs:
        return (
            _failed(verdict, runs) if runs[0].failed else _unknown(verdict, "mask", torch.zeros(1, 1), torch.ones(1, 1))
        )
    seen = runs[0].outputs[0].squeeze()
    right = torch.ones(T, T, dtype=torch.bool).tril()
    if seen.shape != right.shape or not _is_mask(seen):
        return _unknown(verdict, f"mask for {T} tokens", seen.to(torch.float64), right.to(torch.float64))
    shown = seen != 0 if not bool(seen.to(torch.float64).isinf().any()) else seen == 0
    if torch.equal(shown, right) or torch.equal(~shown, right):
        says = "True or 1" if seen.to(torch.float64).isfinite().all() else "0"
        meaning = "may attend" if torch.equal(shown, right) else "hidden"
        verdict.notes.append(
            f"{says} = {meaning}." if says != "0" else "Added to the scores: 0 = may attend, −∞ = hidden."
        )
        return verdict
    case = Case(torch.zeros(1, T, 1), causal=True)
    # A mask alone does not say whether True is hidden: the diagonal on the wrong side is the mistake of both readings.
    for mistake in sorted(MASKING, key=lambda one: not one.name.startswith("mask off by one")):
        if mistake.step != "see" or not mistake.applies(case):
            continue
        wrong = mistake.act(case)
        if torch.equal(shown, wrong) or torch.equal(~shown, wrong):
            example = Example(f"mask for {T} tokens, 1 = may attend", wrong.to(torch.float64), right.to(torch.float64))
            verdict.findings = [
                Finding(
                    mistake.name,
                    mistake.describe(case),
                    mistake.why,
                    "torch.ones(T, T).tril()",
                    "mask",
                    example=example,
                )
            ]
            return verdict
    return _unknown(verdict, f"mask for {T} tokens", seen.to(torch.float64), right.to(torch.float64))


def _is_mask(seen: Tensor) -> bool:
    """Does it hold nothing but 0 and 1, or 0 and numbers that hide when they are added?"""
    if seen.is_complex():
        return False
    values = seen.to(torch.float64)
    return bool(((values == 0) | (values == 1)).all() or ((values == 0) | is_hidden(values, HIDES_IN_EXAMPLE)).all())


def _arguments(subject: Subject, sizes: ProbeSizes) -> list[Any]:
    """x, and numbers for arguments called num_heads or head_dim."""
    values = {**dict.fromkeys(HEADS, sizes.num_heads), **dict.fromkeys(HEAD_DIM, sizes.head_dim)}
    named = [p for p in subject.described["call"][1:] if p["required"]]
    return ["x", *({"value": values.get(p["name"], sizes.num_heads)} for p in named)]


def _split(subject: Subject, sizes: ProbeSizes, seed: int) -> Verdict:
    verdict = _verdict(subject, "splitting (B, T, H·D) into heads")
    x = _random(seed, sizes.B, sizes.T, sizes.width)
    case = Case(x, num_heads=sizes.num_heads)
    runs = _run(subject, {"x": x}, [_arguments(subject, sizes)])
    if runs[0].failed or not runs[0].outputs:
        return _failed(verdict, runs)
    seen, expected = runs[0].outputs[0], split(x, case)
    if same(seen, expected):
        return verdict
    if same(seen, expected.transpose(1, 2)):
        verdict.notes.append("The result is (B, T, H, D): put the heads before the tokens later, by transpose(1, 2).")
        return verdict
    return _named(verdict, SPLITTING, "split", (x, case), seen, expected)


def _merge(subject: Subject, sizes: ProbeSizes, seed: int) -> Verdict:
    verdict = _verdict(subject, "joining heads to (B, T, H·D)")
    context = _random(seed, sizes.B, sizes.num_heads, sizes.T, sizes.head_dim)
    case = Case(torch.zeros(sizes.B, sizes.T, sizes.width), num_heads=sizes.num_heads)
    runs = _run(subject, {"x": context, "y": context.transpose(1, 2).contiguous()}, [_arguments(subject, sizes)])
    if runs[0].failed or not runs[0].outputs:
        return _failed(verdict, runs)
    seen, expected = runs[0].outputs[0], merge(context, case)
    if same(seen, expected):
        return verdict
    return _named(verdict, MERGING, "merge", (context, case), seen, expected)


def _named(
    verdict: Verdict, mistakes: Sequence[Mistake], step: str, given: tuple[Tensor, Case], seen: Tensor, expected: Tensor
) -> Verdict:
    """The mistake that gives this result."""
    t, case = given
    for mistake in mistakes:
        if mistake.step == step and mistake.applies(case) and same(mistake.act(t, case), seen):
            about = f"{mistake.shows}, the first 3 rows"
            example = Example(
                about, seen.reshape(-1, seen.shape[-1])[:3, :6], expected.reshape(-1, expected.shape[-1])[:3, :6]
            )
            verdict.findings = [
                Finding(mistake.name, mistake.describe(case), mistake.why, mistake.fix, mistake.shows, example=example)
            ]
            return verdict
    return _unknown(verdict, step, seen, expected)
