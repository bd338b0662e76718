"""Locating: the line of the learner's file at which a step goes wrong, from the torch calls that ran.

A mistake is at the first call whose value is what the formula gives with the mistake, and not what it gives without it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.mistakes.formula import QKV, Case, Formula
from regard.mistakes.mistake import Mistake
from regard.mistakes.search import FILLINGS, Variant, same
from regard.school.check.subject import Observation, Recorded
from regard.support.hidden_scores import HIDES_IN_EXAMPLE
from regard.traces.arrangements import Numbers

ORDER = ("queries", "keys", "values", "split", "shared keys", "scores", "scaled", "weights", "context", "concat", "out")
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def steps_of(case: Case, variant: Variant, out: Tensor | None = None) -> dict[str, Tensor]:
    """The steps of the formula with these mistakes, hidden scores written as in the layer that gave this output.

    Weights of a wrong layer need not fit the right formula: then only the steps before that are returned, or none.
    """
    formula = replace(Formula(), **{one.step: one.act for one in variant})
    steps: dict[str, Tensor] = {}
    for filling in FILLINGS:
        steps = _as_far_as_possible(formula, replace(case, filling=filling))
        if out is None or ("out" in steps and same(steps["out"], out)):
            break
    return steps


def _as_far_as_possible(formula: Formula, case: Case) -> dict[str, Tensor]:
    try:
        return formula.steps(case)
    except (RuntimeError, ValueError):
        pass
    try:
        steps = replace(formula, output=lambda concat, case: concat).steps(case)
    except (RuntimeError, ValueError):
        return {}
    return {name: value for name, value in steps.items() if name != "out"}


def line_of(mistake: Mistake, variant: Variant, case: Case, out: Tensor, seen: Observation, source: str) -> int:
    """The line of a mistake, 0 where it cannot be told."""
    wrong = steps_of(case, variant, out)
    right = steps_of(case, tuple(one for one in variant if one is not mistake))
    calls = [call for call in seen.recorded[seen.built :] if call.line]
    if mistake.name == "unused output projection":
        return return_line(source, calls)
    if mistake.step == "project" and (line := _swap_line(mistake, source, calls)):
        return line
    if mistake.step == "see" and (line := _mask_line(mistake, case, wrong, seen, calls)):
        return line
    if mistake.step == "scale" and (line := _scale_line(wrong, calls)):
        return line
    if mistake.hides and mistake.shows == "mask" and (line := _fill_line(wrong, calls)):
        return line
    shows = "scores" if mistake.step == "project" and mistake.name.startswith("q, k, v") else mistake.shows
    first = ORDER.index(shows) if shows in ORDER else ORDER.index("weights")
    also = {"split": ("split", "split keys", "split values")}
    for name in ORDER[first:]:
        for call in calls:
            if any(_is(call.value, wrong[one], right.get(one)) for one in also.get(name, (name,))):
                return call.line
    return 0


def likeliest(variants: Sequence[Variant], seen: Observation) -> Variant:
    """Of explanations that give the same numbers, the one that the calls show.

    +1e9 where the future is and −1e9 where it is not are one function: which was written, a large number tells.
    """
    values = [call.value for call in seen.recorded if call.value.is_floating_point()]
    is_high = any(bool((value.nan_to_num(0.0, neginf=0.0) >= -HIDES_IN_EXAMPLE).any()) for value in values)
    signs = [variant for variant in variants if any(one.name == "wrong sign of infinity" for one in variant)]
    return signs[0] if is_high and signs else variants[0]


def _is(value: Tensor, wrong: Tensor, right: Tensor | None) -> bool:
    """Is a recorded value the wrong step and not the right one; all of it, or one head or text?"""
    if not value.is_floating_point() or (right is not None and same(wrong, right)):
        return False
    mine = Numbers(value, **CLOSE)
    return holds(mine, wrong) and (right is None or not holds(mine, right))


def holds(mine: Numbers, step: Tensor, hidden: bool = True) -> bool:
    """Is it an arrangement of the step; all of it, or one head or text?"""
    other = Numbers(step, **CLOSE)
    return mine.find(other, ordered=True, hidden=hidden) or (len(mine.sizes) > 1 and mine.part_of(other, ordered=True))


def _scale_line(wrong: dict[str, Tensor], calls: Sequence[Recorded]) -> int:
    scores = wrong["scores"]
    place = scores.abs().argmax()
    factor = float(wrong["scaled"].flatten()[place] / scores.flatten()[place])
    if abs(factor - 1) < 1e-9:  # not scaled: the product is the nearest that there is
        return next((call.line for call in calls if holds(Numbers(call.value, **CLOSE), scores)), 0)
    inputs = [wrong[name] * factor for name in ("queries", "keys", "split", "split keys")]
    scaled = [wrong["scaled"], *inputs]
    for call in calls:
        if not call.value.is_floating_point():
            continue
        mine = Numbers(call.value, **CLOSE)
        if any(holds(mine, one, hidden=False) for one in scaled) and not holds(mine, scores, hidden=False):
            return call.line
    return 0


def _mask_line(
    mistake: Mistake, case: Case, wrong: dict[str, Tensor], seen: Observation, calls: Sequence[Recorded]
) -> int:
    everything = bool(wrong["mask"].all())
    for call in seen.recorded:
        if everything or not call.line or call.value.dim() < 2 or call.value.shape[-1] != call.value.shape[-2]:
            continue
        square = call.value.reshape(-1, *call.value.shape[-2:])[0]
        n = len(square)
        patterns = [square != 0, square == 0, square.isinf() if square.is_floating_point() else square != 0]
        larger = replace(case, x=case.x[:, :1].expand(-1, n, -1), qkv=None)
        bad, good = mistake.act(larger), larger.visible()
        if n > 1 and any(_alike(p, bad) and not _alike(p, good) for p in patterns) and call.value.numel() == n * n:
            return call.line
    hidden = ~wrong["mask"]
    for call in calls:
        if everything or call.value.shape[-2:] != hidden.shape or not call.value.is_floating_point():
            continue
        mine = Numbers(call.value).hidden
        if mine is not None and mine.shape == hidden.shape and torch.equal(mine, hidden):
            return call.line
    return 0


def _alike(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b) or torch.equal(~a, b)


def _fill_line(wrong: dict[str, Tensor], calls: Sequence[Recorded]) -> int:
    """Where hidden scores get the wrong number: the first call with that number in all hidden places, and only there."""
    hidden = ~wrong["mask"]
    for call in calls:
        value = call.value
        if value.dim() < 3 or value.shape[-2:] != hidden.shape or not value.is_floating_point():
            continue
        inside, outside = value[..., hidden], value[..., ~hidden]
        if not inside.numel():
            continue
        same_number = bool((inside == inside.flatten()[0]).all()) and bool((outside != inside.flatten()[0]).all())
        if same_number or (
            bool((inside.abs() >= -HIDES_IN_EXAMPLE).all()) and bool((outside.abs() < -HIDES_IN_EXAMPLE).all())
        ):
            return call.line
    return 0


def _swap_line(mistake: Mistake, source: str, calls: Sequence[Recorded]) -> int:
    """The line that assigns queries, keys or values from another projection, by its names."""
    lines = {call.line for call in calls}
    words = {"W_query": r"q(uer(y|ies))?s?", "W_key": r"k(eys?)?s?", "W_value": r"v(als?|alues?)?s?"}
    for node in _assignments(source):
        if len(node.targets) != 1 or not lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and _unpacks_in_another_order(target, node.value, words):
            return node.lineno
        pairs = [(target, node.value)]
        if (
            isinstance(target, ast.Tuple)
            and isinstance(node.value, ast.Tuple)
            and len(target.elts) == len(node.value.elts)
        ):
            pairs = list(zip(target.elts, node.value.elts, strict=True))
        for left, right in pairs:
            if not isinstance(left, ast.Name):
                continue
            kind = next((n for n in QKV if re.fullmatch(words[n], left.id, re.IGNORECASE)), None)
            attributes = [one.attr for one in ast.walk(right) if isinstance(one, ast.Attribute)]
            used = {n for n in QKV for attribute in attributes if _is_called(attribute, words[n])}
            if kind and len(used) == 1 and kind not in used:
                return right.lineno
    return 0


def _unpacks_in_another_order(target: ast.Tuple, value: ast.expr, words: Mapping[str, str]) -> bool:
    """v, k, q = qkv: three names, one for each, and not in the order in which people keep them."""
    attributes = [one.attr for one in ast.walk(value) if isinstance(one, ast.Attribute)]
    if any(_is_called(attribute, word) for attribute in attributes for word in words.values()):
        return False  # each is given its own
    names = [one.id for one in target.elts if isinstance(one, ast.Name)]
    kinds = [next((n for n in QKV if re.fullmatch(words[n], name, re.IGNORECASE)), "") for name in names]
    return sorted(kinds) == sorted(QKV) and tuple(kinds) != QKV


def _is_called(name: str, word: str) -> bool:
    parts = [part for part in re.split(r"_", name) if part.lower() not in ("w", "proj", "linear", "to", "lin", "fc")]
    joined = re.sub(r"(?i)^w(?=[qkv]$)", "", "_".join(parts))
    return bool(re.fullmatch(word, joined, re.IGNORECASE))


def _assignments(source: str) -> Iterator[ast.Assign]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield node


def softmax_line(seen: Observation) -> int:
    """The line of the softmax, or of the fused kernel that holds it."""
    names = ("softmax", "scaled_dot_product_attention")
    calls = [call for call in seen.recorded[seen.built :] if call.line]
    return next((call.line for call in calls if any(name in call.name for name in names)), 0)


def hiding_line(seen: Observation) -> int:
    """The line at which scores are hidden: the first that makes −∞ or a very low number of some of them."""
    calls = [call for call in seen.recorded[seen.built :] if call.line]
    hides = (
        c for c in calls if c.value.dim() > 2 and c.value.is_floating_point() and Numbers(c.value).hidden is not None
    )
    return next((call.line for call in hides), 0) or softmax_line(seen)


def return_line(source: str, calls: Sequence[Recorded]) -> int:
    """The line at which the output is returned."""
    last = calls[-1].line if calls else 0
    try:
        returns = [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Return)]
    except SyntaxError:
        return last
    return next((line for line in sorted(returns) if line >= last), last)
