"""Extensions: layers that are more than the formula: rotary positions, a bias by position, a window, norms of queries and
keys, a residual.

What is added is read from the torch calls and must have the properties of what it is taken for; a name in the code must
speak of it, too. The rest is compared with the formula as ever, so that a mistake in it keeps its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.mistakes.formula import Case, Formula, merge, share, split
from regard.mistakes.search import TOLERANCE, explanations_of_size, outputs, same
from regard.school.check.calling import inputs
from regard.school.check.norms import FirstNorm, find_norm
from regard.school.check.positions import angles, is_alibi, is_two_steps, is_usual
from regard.school.check.stated import names_positions, names_window
from regard.school.check.subject import Observation, Recorded, Subject
from regard.school.check.values import Experiment, distinguishable
from regard.support.hidden_scores import HIDES_IN_EXAMPLE, is_hidden, may_see

_FUSED = "scaled_dot_product_attention"
_EPS = (1e-5, 1e-6, 1e-8, None)


@dataclass(frozen=True)
class Extension:
    """What a layer has beside the formula, and the case in which that is taken out of the question."""

    what: str  # a sentence for the learner
    case: Case
    out: Tensor  # what the formula must give in that case
    unknown: str = ""  # what cannot be known of it: then the layer is not checked; "" where everything is
    is_window: bool = False


def with_extension(result: Experiment, seen: Observation, source: str, causal: bool | None = None) -> Experiment:
    """The experiment explained as the formula with one extension, where that and at most one mistake explain it."""
    if result.case is None or result.out is None or result.reading is None or result.variants is not None:
        return result
    if not result.case.projections or result.case.reads_pieces:
        return result
    ways = list(_extensions(result, seen, source, causal))
    for size, one in product((0, 1), ways):
        mistakes = distinguishable(result.reading)
        if matches := explanations_of_size(one.case, [one.out], size, TOLERANCE, mistakes):
            return replace(
                result, case=one.case, out=one.out, variants=[variant for _, variant in matches], extension=one
            )
    return result


def is_same_for_another_text(subject: Subject, result: Experiment) -> bool:
    """Does a bias or a window that was read from one text explain the output for another one, too?"""
    case, call, first = result.case, result.call, result.tensors["x"]
    assert case is not None
    assert call is not None
    if case.bias is None and not (result.extension.is_window and not call.mask):
        return True  # norms, rotations and residuals are known by their numbers
    x = first.flip(0, 1) * 0.9
    seen = subject.run(result.job(calls=[call.as_json()]), {**result.tensors, **inputs(x)})
    outs = call.outputs(seen.runs[0].outputs, len(x), x.shape[1]) if seen.failure is None else []
    norm = None if same(case.x, first[: len(case.x)]) else _norm(result)
    read = replace(case, x=(x if norm is None else norm(x))[: len(case.x)])
    made = outputs(read, result.variants[0] if result.variants else ())
    return bool(outs) and any(same(one, outs[0].to(torch.float64)) for one in made)


def _norm(result: Experiment) -> FirstNorm | None:
    """The norm of x, where the layer has one."""
    weights = {name.removeprefix("state."): t for name, t in result.tensors.items() if name.startswith("state.")}
    return find_norm(result.observation.contents, weights, result.tensors["x"].shape[-1])


def _extensions(result: Experiment, seen: Observation, source: str, causal: bool | None) -> Iterator[Extension]:
    assert result.case is not None
    assert result.out is not None
    calls = seen.recorded[seen.built :]
    numbers = {i + seen.built: call.value for i, call in enumerate(calls)}
    for base in _bases(result, causal):
        yield from _residuals(result, base)
        try:
            steps = Formula().steps(base)
        except (RuntimeError, ValueError):
            continue
        for q, k in _compared(calls, numbers, base):
            yield from _rotated(base, result.out, steps, q, k, source)
            yield from _normed(base, result, steps, q, k)
        for scores in _scores(calls, numbers, base, steps):
            yield from _biased(base, result.out, steps, scores, source)
            yield from _windowed(base, result, steps, scores, source)


def _bases(result: Experiment, causal: bool | None) -> Iterator[Case]:
    """The case with and without the mask of the future, on x and on the norm of x."""
    case = result.case
    assert case is not None
    norm = _norm(result)
    both = causal is None and case.mask is None
    for one in (case, replace(case, causal=not case.causal)) if both else (case,):
        yield one
        if norm is not None and result.norm is None:
            yield replace(one, x=norm(one.x))


def _residuals(result: Experiment, base: Case) -> Iterator[Extension]:
    """x, or its norm, is added to the output."""
    out, x = result.out, result.tensors.get("x")
    assert out is not None
    if x is None or x.shape[-1] != out.shape[-1]:
        return
    x = x[: len(out)]
    what = "It adds x to its output, a residual connection inside the layer."
    yield Extension(what, base, out - x)
    if (norm := _norm(result)) is not None:
        try:
            right = Formula()(base)
        except (RuntimeError, ValueError):
            return
        if right.shape == x.shape and same(norm(x + right), out):
            yield Extension("It adds x to its output and normalises the sum.", base, right)


def _compared(calls: Sequence[Recorded], numbers: dict[int, Tensor], case: Case) -> Iterator[tuple[Tensor, Tensor]]:
    """Queries and keys as they enter the scores, (B, heads, T, D)."""
    for call in calls:
        is_product = call.name in ("matmul", "bmm", "einsum", "rmatmul", "baddbmm", _FUSED)
        if not is_product or len(call.inputs) < 2 or not all(i in numbers for i in call.inputs[:2]):
            continue
        q, k = (_as_heads(numbers[i], case) for i in call.inputs[:2])
        if q is not None and k is not None and q.shape[1] == case.num_heads:
            yield q, k


def _as_heads(t: Tensor, case: Case) -> Tensor | None:
    """A tensor of queries or keys as (B, heads, T, D); None where it is none."""
    B, T, D = len(case.x), case.x.shape[1], case.head_dim
    keys = len(case.projections["W_key"].weight) // D
    for heads in (case.num_heads, keys):
        ways: dict[tuple[int, ...], tuple[int, ...]] = {
            (B, heads, T, D): (0, 1, 2, 3),
            (B, T, heads, D): (0, 2, 1, 3),
            (B, heads, D, T): (0, 1, 3, 2),
            (B, heads, T, D, 0): (),
        }
        if order := ways.get(tuple(t.shape)):
            return t.permute(order).to(torch.float64)
        if t.shape == (B * heads, T, D):
            return t.view(B, heads, T, D).to(torch.float64)
        if t.shape == (B * heads, D, T):
            return t.view(B, heads, D, T).mT.to(torch.float64)
        if heads == 1 and t.shape in ((B, T, D), (B, D, T)):
            return (t if t.shape[1] == T else t.mT)[:, None].to(torch.float64)
    return None


def _with_heads(case: Case, steps: dict[str, Tensor], q: Tensor, k: Tensor) -> Case:
    return replace(case, qkv=(merge(q, case), k.transpose(1, 2).flatten(2), steps["values"]))


def _rotated(
    case: Case, out: Tensor, steps: dict[str, Tensor], q: Tensor, k: Tensor, source: str
) -> Iterator[Extension]:
    if not names_positions(source):
        return
    keys = split(steps["keys"], case)
    turned = angles(steps["split"], q)
    if turned is None or not bool((turned.abs() > 1e-6).any()):
        return
    also = angles(keys if k.shape == keys.shape else share(keys, case), k)
    if also is None or also.shape != turned.shape or not bool(((turned - also).cos() > 1 - 1e-9).all()):
        return
    unknown = "" if is_usual(turned) else "by which angles, nothing here says"
    what = "It rotates queries and keys by their positions (rotary positions)."
    yield Extension(what, _with_heads(case, steps, q, k), out, unknown)


def _normed(case: Case, result: Experiment, steps: dict[str, Tensor], q: Tensor, k: Tensor) -> Iterator[Extension]:
    assert result.out is not None
    keys = split(steps["keys"], case)
    keys = keys if k.shape == keys.shape else share(keys, case)
    if same(q, steps["split"]) or same(k, keys):
        return
    vectors = [t for name, t in result.tensors.items() if name.startswith("state.") and t.dim() == 1]
    if any(same(one, q) for one in _norms(steps["split"], vectors)) and any(
        same(one, k) for one in _norms(keys, vectors)
    ):
        yield Extension("It normalises queries and keys.", _with_heads(case, steps, q, k), result.out)


def _norms(t: Tensor, vectors: Sequence[Tensor]) -> Iterator[Tensor]:
    """What a norm can make of queries or keys (B, H, T, D), with each of these vectors as its weight and bias."""
    for whole in (False, True):  # head by head, or before the heads are split
        x = t.transpose(1, 2).flatten(2) if whole else t
        fitting = [None, *(v for v in vectors if len(v) == x.shape[-1])]
        for weight in fitting:
            scale = 1 if weight is None else weight
            made = [F.normalize(x, dim=-1) * scale, *(F.rms_norm(x, x.shape[-1:], weight, eps) for eps in _EPS)]
            made += [F.layer_norm(x, x.shape[-1:], weight, bias, eps) for bias in fitting for eps in _EPS[:3] if eps]
            for one in made:
                yield one.unflatten(-1, (t.shape[1], -1)).transpose(1, 2) if whole else one


def _scores(
    calls: Sequence[Recorded], numbers: dict[int, Tensor], case: Case, steps: dict[str, Tensor]
) -> Iterator[Tensor]:
    """The scores as they enter the softmax, (B, H, T, T), hidden ones −∞."""
    shape = steps["scaled"].shape
    for call in calls:
        if "softmax" in call.name and call.inputs and call.inputs[0] in numbers:
            t = numbers[call.inputs[0]]
            if t.numel() == steps["scaled"].numel() and t.shape[-2:] == shape[-2:]:
                yield t.reshape(shape).to(torch.float64)
        elif call.name == _FUSED and len(call.inputs) > 3 and call.inputs[3] in numbers:
            t = numbers[call.inputs[3]]
            added = torch.zeros(t.shape).masked_fill(~t, -torch.inf) if t.dtype == torch.bool else t
            if added.is_floating_point() and added.shape[-2:] == shape[-2:]:
                yield steps["scaled"] + added.to(torch.float64)


def _biased(case: Case, out: Tensor, steps: dict[str, Tensor], scores: Tensor, source: str) -> Iterator[Extension]:
    """The same number is added to a score whatever the text is: it can only depend on the positions."""
    hidden = is_hidden(scores, HIDES_IN_EXAMPLE)
    if not names_positions(source):
        return
    for name in ("scaled", "scores"):
        bias = (scores - steps[name]).masked_fill(hidden, 0.0)
        if len(bias) > 1 and same(bias, bias[:1].expand_as(bias)) and not same(bias, torch.zeros_like(bias)):
            visible = ~hidden[0]
            if is_two_steps(bias[0], visible):  # a mask that was added, and hides nothing
                continue
            unknown = "" if is_alibi(bias[0], visible) else "by how much, nothing here says"
            yield Extension(
                "It adds a number to each score by the positions of its tokens.",
                replace(case, bias=bias[0]),
                out,
                unknown,
            )


def _windowed(
    case: Case, result: Experiment, steps: dict[str, Tensor], scores: Tensor, source: str
) -> Iterator[Extension]:
    """Tokens see some tokens around them, the same number everywhere."""
    assert result.out is not None
    visible = may_see(scores, HIDES_IN_EXAMPLE)[0, 0]
    T = len(visible)
    if not names_window(source) or torch.equal(visible, steps["mask"]) or not bool(visible.diagonal().all()):
        return
    offsets = [d for d in range(-T + 1, T) if bool(visible.diagonal(d).any())]
    is_band = all(bool(visible.diagonal(d).all()) for d in offsets) and offsets == list(
        range(offsets[0], offsets[-1] + 1)
    )
    if (
        not is_band
        or not bool((may_see(scores, HIDES_IN_EXAMPLE) == visible).all())
        or (case.causal and offsets[-1] > 0)
    ):
        return
    size = len(range(offsets[0], 1))
    attributes = result.observation.contents.get("attributes", {})
    sizes = [value for name, value in attributes.items() if names_window(name)]
    unknown = "" if size in sizes or size - 1 in sizes else "how many, nothing here says"
    yield Extension(
        f"A token sees only the last {size} tokens, a window.",
        replace(case, mask=visible),
        result.out,
        unknown,
        is_window=True,
    )
