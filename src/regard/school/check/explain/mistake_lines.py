"""Mistake lines: the line of the learner's file at which a step goes wrong, from the torch calls that ran.

A mistake is at the first call whose value is what the formula gives with the mistake, and not what it gives without it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from regard.mistakes.formula import QKV, Case, Known
from regard.mistakes.mistake import Mistake, formula_with
from regard.mistakes.search import FILLINGS, Variant, same
from regard.school.check.compare.experiment import Experiment
from regard.school.check.learner_code.protocol import Observation, Recorded
from regard.school.check.learner_code.text_hints import LONGEST_LINE, own_text
from regard.support.hidden_scores import HIDES_IN_EXAMPLE
from regard.traces.arrangements import Numbers

Node = TypeVar("Node", bound=ast.AST)
ORDER = (
    *("queries", "keys", "values", "split", "shared keys", "scores", "scaled", "masked", "weights"),
    *("context", "concat", "out"),
)
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def steps_of(case: Case, variant: Variant, out: Tensor | None = None) -> dict[str, Tensor]:
    """The steps of the formula with these mistakes, hidden scores written as in the layer that gave this output.

    Weights of a wrong layer need not fit the right formula: then only the steps up to concat are returned, or none.
    """
    formula = formula_with(variant)
    steps: dict[str, Tensor] = {}
    for filling in FILLINGS:
        known: Known = {}
        with suppress(RuntimeError, ValueError):
            formula.steps(replace(case, filling=filling), known)
        steps = next((made for made in reversed(known.values()) if isinstance(made, dict) and "concat" in made), {})
        if out is None or ("out" in steps and same(steps["out"], out)):
            break
    return steps


def line_of(mistake: Mistake, result: Experiment, variant: Variant) -> int:
    """The line of a mistake of this explanation, 0 where it cannot be told."""
    case, seen, source = result.case, result.seen, result.subject.source
    wrong = steps_of(case, variant, result.out)
    right = steps_of(case, tuple(one for one in variant if one is not mistake))
    calls = seen.with_lines
    if mistake.name in ("unused output projection", "x itself returned"):
        return return_line(source, calls)
    if mistake.name.startswith("integer division"):
        return line_with(source, mistake.written)
    line = 0
    if mistake.step == "project":
        line = _swap_line(source, calls)
    elif mistake.step == "see":
        line = _mask_line(mistake, case, wrong, seen)
    elif mistake.step == "scale":
        line = _scale_line(wrong, calls, case.head_dim, mistake.name == "scaled twice")
    if not line and mistake.hides and mistake.shows == "mask":
        line = _fill_line(wrong, calls)
    return line or _step_line(mistake, wrong, right, calls)


def _step_line(mistake: Mistake, wrong: dict[str, Tensor], right: dict[str, Tensor], calls: Sequence[Recorded]) -> int:
    """The first call that holds a wrong step, from the step at which the mistake shows."""
    shows = "scores" if mistake.name.startswith("q, k, v") else mistake.shows
    first = ORDER.index(shows if shows in ORDER else "masked")
    also = {"split": ("split", "split keys", "split values")}
    for name in ORDER[first:]:
        for call in calls:
            if any(_is(call.value, wrong[one], right.get(one)) for one in also.get(name, (name,))):
                return call.line
    return 0


def likeliest(result: Experiment) -> Variant:
    """Of explanations that give the same numbers, the one that the calls and the text show.

    +1e9 where the future is and −1e9 where it is not are one function: which was written, a large number tells. So are
    a scale that is used twice and one without a root: scores, queries or keys that are scaled once tell.
    """
    variants, seen = result.variants or [()], result.seen
    if len(variants) == 1:
        return variants[0]
    if any(_has(variant, "scaled twice") for variant in variants):
        is_twice = _is_scaled_once(result, variants[0])
        variants = [one for one in variants if _has(one, "scaled twice") == is_twice] or variants
    is_told = -1 if result.subject.source else 1  # without a text, nothing tells of what must be written in it
    variants = sorted(variants, key=lambda variant: is_told * sum(bool(one.written) for one in variant))
    made = (call for call in seen.recorded if not call.name.startswith("empty"))  # that is whatever was in memory
    values = [call.value for call in made if call.value.is_floating_point()]
    is_high = any(bool((value.nan_to_num(0.0, neginf=0.0) >= -HIDES_IN_EXAMPLE).any()) for value in values)
    signs = [variant for variant in variants if _has(variant, "wrong sign of infinity")]
    return signs[0] if is_high and signs else variants[0]


def _has(variant: Variant, name: str) -> bool:
    return any(one.name == name for one in variant)


def _is_scaled_once(result: Experiment, variant: Variant) -> bool:
    """Is there a step that is divided by √head_dim once, on the way to scores that are divided by head_dim?"""
    steps, factor = steps_of(result.case, variant, result.out), result.case.head_dim**-0.5
    names = ("queries", "keys", "split", "split keys", "shared keys", "scores")
    once = [steps[name] * factor for name in names if name in steps]
    is_once = any(
        holds(Numbers(call.value, **CLOSE), one)
        for call in result.seen.forward
        if call.value.is_floating_point() and call.value.numel() > 1
        for one in once
    )
    lines = own_text(result.subject.source, result.subject.described["name"]).splitlines()
    written = sum(bool(re.search(r"sqrt|\*\*\s*-?\s*\(?0?\.5|rsqrt|scale\b", line)) for line in lines)
    return is_once or (not result.seen.forward and written > 1)


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


def _first_line(calls: Sequence[Recorded], test: Callable[[Tensor], bool]) -> int:
    """The line of the first call that gave such numbers, 0 where none did."""
    return next((call.line for call in calls if call.value.is_floating_point() and test(call.value)), 0)


def _holding_line(calls: Sequence[Recorded], tensors: Sequence[Tensor]) -> int:
    return _first_line(calls, lambda value: any(holds(Numbers(value, **CLOSE), t) for t in tensors))


def _second_line(wrong: dict[str, Tensor], calls: Sequence[Recorded], factor: float) -> int:
    """Where a scale is used for the second time: on the keys after the queries, or on the scores after either."""
    groups = (("queries", "split"), ("keys", "split keys", "shared keys"), ("scores",))
    scaled = [[wrong[name] * factor for name in names if name in wrong] for names in groups]
    found = [_holding_line(calls, tensors) for tensors in (*scaled, [wrong["scaled"]])]
    lines = sorted(set(found) - {0})
    return lines[1] if len(lines) > 1 else 0


def _scale_line(wrong: dict[str, Tensor], calls: Sequence[Recorded], head_dim: int, is_twice: bool) -> int:
    scores = wrong["scores"]
    if is_twice and (line := _second_line(wrong, calls, head_dim**-0.5)):
        return line
    place = scores.abs().argmax()
    factor = float(wrong["scaled"].flatten()[place] / scores.flatten()[place])
    if abs(factor - 1) < 1e-9:  # not scaled: the product is the nearest that there is
        return _first_line(calls, lambda value: holds(Numbers(value, **CLOSE), scores))
    scaled = [wrong["scaled"], *(wrong[name] * factor for name in ("queries", "keys", "split", "split keys"))]

    def is_scaled(value: Tensor) -> bool:
        mine = Numbers(value, **CLOSE)
        return any(holds(mine, one, hidden=False) for one in scaled) and not holds(mine, scores, hidden=False)

    return _first_line(calls, is_scaled)


def _mask_line(mistake: Mistake, case: Case, wrong: dict[str, Tensor], seen: Observation) -> int:
    """Where the wrong mask is made; else where it hides scores."""
    hidden = ~wrong["mask"]

    def hides(value: Tensor) -> bool:
        mine = Numbers(value).hidden if value.shape[-2:] == hidden.shape else None
        return mine is not None and torch.equal(mine, hidden)

    if not bool(hidden.any()):
        return 0
    made = (call.line for call in seen.recorded if call.line and _is_wrong_mask(call.value, mistake, case))
    return next(made, 0) or _first_line(seen.with_lines, hides)


def _is_wrong_mask(value: Tensor, mistake: Mistake, case: Case) -> bool:
    """Is it a square that hides, or shows, what the mistake hides at its size, and the right mask does not?"""
    n = value.shape[-1] if value.dim() > 1 else 0
    if n < 2 or value.shape[-2] != n or value.numel() != n * n:
        return False
    square, larger = value.reshape(n, n), replace(case, x=case.x[:, :1].expand(-1, n, -1), qkv=None)
    bad, good = mistake.act(larger), larger.visible()
    patterns = (square != 0, square == 0, square.isinf())
    return any(_alike(one, bad) and not _alike(one, good) for one in patterns)


def _alike(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b) or torch.equal(~a, b)


def _fill_line(wrong: dict[str, Tensor], calls: Sequence[Recorded]) -> int:
    """Where hidden scores get the wrong number: the first call with it in all hidden places, and only there."""
    hidden = ~wrong["mask"]

    def fills(value: Tensor) -> bool:
        if value.dim() < 3 or value.shape[-2:] != hidden.shape or not bool(hidden.any()) or not value.numel():
            return False
        inside, outside = value[..., hidden], value[..., ~hidden]
        number = inside.flatten()[0]
        is_large = bool((inside.abs() >= -HIDES_IN_EXAMPLE).all() and (outside.abs() < -HIDES_IN_EXAMPLE).all())
        return is_large or bool((inside == number).all() and (outside != number).all())

    return _first_line(calls, fills)


_AROUND_NAMES = ("w", "proj", "linear", "to", "lin", "fc")
_QKV_WORDS = {"W_query": r"q(uer(y|ies))?s?", "W_key": r"k(eys?)?s?", "W_value": r"v(als?|alues?)?s?"}


def _swap_line(source: str, calls: Sequence[Recorded]) -> int:
    """The line that assigns queries, keys or values from another projection, by its names."""
    lines = {call.line for call in calls}
    for node in nodes(source, ast.Assign):
        if len(node.targets) != 1 or not lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)):
            continue
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple):
            kinds = tuple(_kind_of(one.id) for one in target.elts if isinstance(one, ast.Name))
            if not _projections_in(value) and sorted(kinds) == sorted(QKV) and kinds != QKV:  # v, k, q = qkv
                return node.lineno
            if isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                pairs = list(zip(target.elts, value.elts, strict=True))
        if line := next((right.lineno for left, right in pairs if _is_swapped(left, right)), 0):
            return line
    return 0


def _is_swapped(left: ast.expr, right: ast.expr) -> bool:
    """Is a name for one of queries, keys and values assigned from the projection of another?"""
    kind, used = _kind_of(left.id) if isinstance(left, ast.Name) else "", _projections_in(right)
    return kind != "" and len(used) == 1 and kind not in used


def _kind_of(name: str) -> str:
    """Which of the projections a name speaks of, "" for others."""
    return next((n for n, word in _QKV_WORDS.items() if re.fullmatch(word, name, re.IGNORECASE)), "")


def _projections_in(value: ast.expr) -> set[str]:
    """The projections of queries, keys and values that an expression names: W_q, to_q, q_proj, wq …"""
    names = [one.attr for one in ast.walk(value) if isinstance(one, ast.Attribute)]
    parts = ([part for part in name.split("_") if part.lower() not in _AROUND_NAMES] for name in names)
    return {_kind_of(re.sub(r"(?i)^w(?=[qkv]$)", "", "_".join(part))) for part in parts} - {""}


def nodes(source: str, kind: type[Node]) -> list[Node]:
    """The nodes of this kind in a text, none where it is no Python."""
    try:
        return [node for node in ast.walk(ast.parse(source)) if isinstance(node, kind)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def line_with(source: str, pattern: str) -> int:
    """The first line of code that holds the pattern, 0 where none does."""
    code = re.sub(r"(\"{3}|'{3})[\s\S]*?\1", lambda text: "\n" * text[0].count("\n"), source)
    lines = enumerate(code.splitlines(), 1)
    return next((i for i, line in lines if len(line) <= LONGEST_LINE and re.search(pattern, line)), 0)


def softmax_line(seen: Observation) -> int:
    """The line of the softmax, or of the fused kernel that holds it."""
    names = ("softmax", "scaled_dot_product_attention")
    return next((call.line for call in seen.with_lines if any(name in call.name for name in names)), 0)


def hiding_line(seen: Observation) -> int:
    """The line at which scores are hidden: the first that makes −∞ or a very low number of some of them."""
    hides = _first_line(seen.with_lines, lambda value: value.dim() > 2 and Numbers(value).hidden is not None)
    return hides or softmax_line(seen)


def return_line(source: str, calls: Sequence[Recorded]) -> int:
    """The line at which the output is returned."""
    last = calls[-1].line if calls else 0
    returns = sorted(node.lineno for node in nodes(source, ast.Return))
    return next((line for line in returns if line >= last), last)
