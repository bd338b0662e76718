"""Extensions: layers that are more than the formula: rotary positions, a bias by position, a window, norms, a residual.

What is added is read from the torch calls and must have the properties of what it is taken for; a name in the code must
speak of it, too. The rest is compared with the formula as ever, so that a mistake in it keeps its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.mistakes.formula import Case, Formula, merge, share, split
from regard.mistakes.search import TOLERANCE, explanations_of_size, same
from regard.school.check.compare.call_forms import inputs
from regard.school.check.compare.experiment import Experiment, Extension
from regard.school.check.compare.parameters import Norm, find_norm
from regard.school.check.learner_code.protocol import Recorded
from regard.school.check.learner_code.text_hints import names_positions, names_window
from regard.support.hidden_scores import HIDES_IN_EXAMPLE, is_hidden, may_see

_FUSED = "scaled_dot_product_attention"
_PRODUCTS = ("matmul", "bmm", "einsum", "rmatmul", "baddbmm", _FUSED)
_EPS = (1e-5, 1e-6, 1e-8, None)
_BASE = 10000.0  # of the wavelengths of rotary positions


def with_extension(result: Experiment) -> Experiment:
    """The experiment explained as the formula with one extension, where that and at most one mistake explain it."""
    if result.is_explained or result.case.reads_pieces or not (result.case.projections or result.case.qkv):
        return result
    for size, one in product((0, 1), list(_extensions(result, result.text))):
        if matches := explanations_of_size(one.case, [one.out], size, TOLERANCE, result.mistakes(result.reading)):
            variants = [variant for _, variant in matches]
            return replace(result, case=one.case, out=one.out, variants=variants, extension=one)
    return result


def is_same_for_another_text(result: Experiment) -> bool:
    """Does a bias or a window that was read from one text explain the output for another one, too?"""
    case, first = result.case, result.tensors.get("x")
    if first is None or (case.bias is None and (case.mask is None or result.call.mask)):
        return True  # norms, rotations and residuals are known by their numbers
    x = first.flip(0, 1) * 0.9
    outs = result.outputs(result.run(tensors=inputs(x)))
    norm = None if same(case.x, first[: len(case.x)]) else _norm(result)
    read = replace(case, x=(x if norm is None else norm(x))[: len(case.x)])
    return bool(outs) and result.is_formula(outs[0], read, TOLERANCE)


def _norm(result: Experiment) -> Norm | None:
    """The norm of x, where the layer has one."""
    weights = {name.removeprefix("state."): t for name, t in result.tensors.items() if name.startswith("state.")}
    return find_norm(result.observation.contents, weights, result.tensors["x"].shape[-1])


def _extensions(result: Experiment, source: str) -> Iterator[Extension]:
    """On x and on the norm of x, with and without the mask of the future where nothing says which."""
    if "x" not in result.tensors:
        yield from _of_function(result, source)
        return
    calls, own, x = result.seen.forward, _norm(result), result.tensors["x"][: len(result.out)]
    has_width = x.shape == result.out.shape
    numbers = {i + result.seen.built: call.value for i, call in enumerate(calls)}
    norms = [None] if own is None or result.norm is not None else [None, own]
    for base in (case if norm is None else replace(case, x=norm(case.x)) for case in result.cases for norm in norms):
        if has_width:
            yield Extension("It adds x to its output, a residual connection inside the layer.", base, result.out - x)
        try:
            steps = Formula().steps(base)
        except (RuntimeError, ValueError):
            continue
        if own is not None and x.shape == steps["out"].shape and same(own(x + steps["out"]), result.out):
            yield Extension("It adds x to its output and normalises the sum.", base, steps["out"])
        yield from _with_other_heads(result, base, steps, _compared(calls, numbers, base), source)
        for scores in _scores(calls, numbers, base, steps):
            yield from _biased(base, result.out, steps, scores, source)
            yield from _windowed(base, result, steps, scores, source)


def _of_function(result: Experiment, source: str) -> Iterator[Extension]:
    """What a function of q, k and v adds to the scores."""
    numbers = {i + result.seen.built: call.value for i, call in enumerate(result.seen.forward)}
    for base in result.cases:
        steps = Formula().steps(base)
        for scores in _scores(result.seen.forward, numbers, base, steps):
            yield from _biased(base, result.out, steps, scores, source)


def _with_other_heads(
    result: Experiment, base: Case, steps: dict[str, Tensor], compared: Iterable[tuple[Tensor, Tensor]], source: str
) -> Iterator[Extension]:
    """Queries and keys are rotated or normalised before they are compared."""
    for q, k in compared:
        keys = split(steps["keys"], base)
        before = (steps["split"], keys if k.shape == keys.shape else share(keys, base))
        read = replace(base, qkv=(merge(q, base), k.transpose(1, 2).flatten(2), steps["values"]))
        if names_positions(source) and (turned := _rotation(before, (q, k))) is not None:
            unknown = "" if is_usual(turned) else "by which angles, nothing here says"
            what = "It rotates queries and keys by their positions (rotary positions)."
            yield Extension(what, read, result.out, unknown)
        if _are_normed(before, (q, k), result):
            yield Extension("It normalises queries and keys.", read, result.out)


def _compared(calls: Sequence[Recorded], numbers: dict[int, Tensor], case: Case) -> Iterator[tuple[Tensor, Tensor]]:
    """Queries and keys as they enter the scores, (B, heads, T, D)."""
    for call in calls:
        if call.name not in _PRODUCTS or len(call.inputs) < 2 or not all(i in numbers for i in call.inputs[:2]):
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
        }
        if order := ways.get(tuple(t.shape)):
            return t.permute(order).to(torch.float64)
        if t.shape in ((B * heads, T, D), (B * heads, D, T)):  # also of one head without an axis
            apart: Tensor = t.unflatten(0, (B, heads)).to(torch.float64)
            return apart if t.shape[1] == T else apart.mT
    return None


def _rotation(before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> Tensor | None:
    """The angles by which queries and keys were rotated alike; None where they were not."""
    turned, also = map(angles, before, after)
    if turned is None or also is None or also.shape != turned.shape or not bool((turned.abs() > 1e-6).any()):
        return None
    return turned if bool(((turned - also).cos() > 1 - 1e-9).all()) else None


def _are_normed(before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor], result: Experiment) -> bool:
    if any(map(same, after, before)):
        return False
    vectors = [t for name, t in result.tensors.items() if name.startswith("state.") and t.dim() == 1]
    return all(any(same(one, t) for one in _norms(of, vectors)) for of, t in zip(before, after, strict=True))


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
            what = "It adds a number to each score by the positions of its tokens."
            yield Extension(what, replace(case, bias=bias[0]), out, unknown)


def _windowed(
    case: Case, result: Experiment, steps: dict[str, Tensor], scores: Tensor, source: str
) -> Iterator[Extension]:
    """Tokens see some tokens around them, the same number everywhere."""
    visible = may_see(scores, HIDES_IN_EXAMPLE)[0, 0]
    T = len(visible)
    if not names_window(source) or torch.equal(visible, steps["mask"]) or not bool(visible.diagonal().all()):
        return
    offsets = [d for d in range(-T + 1, T) if bool(visible.diagonal(d).any())]
    is_full = all(bool(visible.diagonal(d).all()) for d in offsets)
    is_band = is_full and offsets == list(range(offsets[0], offsets[-1] + 1))
    same_everywhere = bool((may_see(scores, HIDES_IN_EXAMPLE) == visible).all())
    if not is_band or not same_everywhere or (case.causal and offsets[-1] > 0):
        return
    size = 1 - offsets[0]
    sizes = [value for name, value in result.observation.contents.get("attributes", {}).items() if names_window(name)]
    unknown = "" if size in sizes or size - 1 in sizes else "how many, nothing here says"
    what = f"A token sees only the last {size} tokens, a window."
    yield Extension(what, replace(case, mask=visible), result.out, unknown)


def angles(before: Tensor, after: Tensor) -> Tensor | None:
    """The angles (T, pairs) by which vectors (B, H, T, D) were rotated in pairs of numbers; None where they were not.

    Pairs are neighbours or stand half a vector apart; only the first numbers of a vector may be rotated.

    >>> x = torch.tensor([[3.0, 4.0]]).view(1, 1, 1, 2)
    >>> angles(x, torch.tensor([[-4.0, 3.0]]).view(1, 1, 1, 2)).item() == torch.pi / 2
    True
    """
    D = before.shape[-1]
    if before.shape != after.shape:
        return None
    for size in (D, D // 2, D // 4):
        if size < 2 or size % 2 or not same(before[..., size:], after[..., size:]):
            continue
        for neighbours in (False, True):
            a, b = (_pairs(t[..., :size], neighbours) for t in (before, after))
            turned = b / a
            angle = turned.angle()
            if not bool(((turned.abs() - 1).abs() < TOLERANCE).all()):
                continue
            if bool(((angle - angle[:1, :1]).cos() > 1 - 1e-9).all()):
                return angle[0, 0]
    return None


def _pairs(t: Tensor, neighbours: bool) -> Tensor:
    pairs = t.unflatten(-1, (-1, 2)) if neighbours else t.unflatten(-1, (2, -1)).mT
    return torch.view_as_complex(pairs.to(torch.float64).contiguous())


def is_usual(turned: Tensor) -> bool:
    """Are these the angles of rotary positions: position × 10000^(−pair / pairs)?"""
    T, pairs = turned.shape
    speeds = _BASE ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    steps = torch.arange(T, dtype=torch.float64)[:, None]
    from_first = turned - turned[:1]
    return bool(((from_first - steps * speeds).cos() > 1 - 1e-9).all())


def is_alibi(bias: Tensor, visible: Tensor) -> bool:
    """Is a bias (H, T, T) that of ALiBi: −slope × distance, the slopes of the heads 2^(−8 h / H)?"""
    H, T, _ = bias.shape
    slopes = 2.0 ** (-8 * torch.arange(1, H + 1, dtype=torch.float64) / H)
    place = torch.arange(T, dtype=torch.float64)
    expected = -slopes[:, None, None] * (place[:, None] - place).abs()
    return same(bias.masked_fill(~visible, 0.0), expected.masked_fill(~visible, 0.0), 1e-4)


def is_two_steps(bias: Tensor, visible: Tensor) -> bool:
    """Is a bias (H, T, T) a mask that was added: one number more after the diagonal than before or on it?

    The numbers of a row may all be larger by the same number than those of another.
    """

    def is_step(one: Tensor, seen: Tensor, offset: int) -> bool:
        above = torch.ones_like(seen).triu(offset)
        rows = [(row[s & a], row[s & ~a]) for row, s, a in zip(one, seen, above, strict=True)]
        steps = [after.mean() - before.mean() for after, before in rows if len(after) and len(before)]
        spreads = [part - part.mean() for row in rows for part in row if len(part)]
        return bool((torch.cat(spreads).abs() < 1e-6).all()) and all(abs(step - steps[0]) < 1e-6 for step in steps)

    return all(any(is_step(one, seen, at) for at in (0, 1)) for one, seen in zip(bias, visible, strict=True))
