"""Run findings: what is wrong in the parts of a layer that were found in its run, by the names that people know."""

from __future__ import annotations

from collections.abc import Iterator

from regard.mistakes.mistake import Mistake
from regard.mistakes.search import MISTAKES
from regard.school.check.compare.anatomy import Anatomy
from regard.school.check.compare.experiment import Experiment
from regard.school.check.compare.run_reading import (
    NOT_SCALED,
    ON_ONE_SIDE,
    ON_VALUES,
    SAME_WEIGHTS,
    SHARED_IN_TURNS,
    doubts,
    knows_factors,
)
from regard.school.check.learner_code.text_hints import names_rotary
from regard.school.check.verdict import Finding, known

VALUES = known(
    "rotary positions on the values",
    "Positions decide who looks where; what is handed over is the token itself.",
    "q, k = rotate(q), rotate(k)  # v stays as it is",
    "values",
)
ONE_SIDE = known(
    "rotary positions on one side",
    "Only where queries and keys are both rotated does a score depend on the distance of the two tokens.",
    "q, k = rotate(q), rotate(k)",
    "queries",
)
TWICE = known(
    "one projection used twice",
    "A query asks, a key is what it is compared with, and a value is what is handed over: each has its own weights.",
    "q, k, v = self.qkv(x).chunk(3, dim=-1)",
    "values",
)
_BY_NAME = {one.name: one for one in MISTAKES}


def wrong_parts(result: Experiment) -> list[Finding]:
    """The mistakes that the parts of a run prove; none where one of them has no name."""
    found = result.anatomy
    if found is None:
        return []
    points = list(doubts(result, found))
    if any(point in SAME_WEIGHTS for point in points):  # then others are left over
        points = [point for point in points if not point.startswith("a part of")]
    each = [_finding(result, found, point) for point in points]
    return [one for one in each if one is not None] if all(each) else []


def _finding(result: Experiment, found: Anatomy, doubt: str) -> Finding | None:
    if doubt == ON_VALUES and names_rotary(result.text):
        return VALUES.found("The values are rotated by their positions, like queries and keys.", found.head.mixed.line)
    if doubt == ON_ONE_SIDE and names_rotary(result.text):
        side = "queries" if found.queries.map.has_positions else "keys"
        return ONE_SIDE.found(f"Only the {side} are rotated by their positions.", found.head.compared.line)
    if doubt == NOT_SCALED and knows_factors(found):
        mistake = next(_scale(found), None)
        return None if mistake is None else _of_case(mistake, result, found.head.compared.line)
    if doubt in SHARED_IN_TURNS:
        return _of_case(_BY_NAME["repeat and interleave confused"], result, found.head.compared.line)
    if doubt in SAME_WEIGHTS:
        first, second = SAME_WEIGHTS[doubt]
        says = f"The {second} are made with the weights of the {first}."
        name = f"one projection used twice: the {second} are made with the weights of the {first}"
        return TWICE.found(says, found.head.mixed.line, name=name)
    return None


def _of_case(mistake: Mistake, result: Experiment, line: int) -> Finding:
    says = mistake.describe(result.case)
    return Finding(mistake.name, says, mistake.why, mistake.fix, mistake.shows, line)


def _scale(found: Anatomy) -> Iterator[Mistake]:
    """By what the scores are divided, where that is a number with a name."""
    H, D = found.head.q.shape[1], found.head.q.shape[-1]
    factor = found.scoring.factor * found.queries.factor * found.keys.factor
    wrong = {"no scale": 1.0, "missing root": 1 / D, "scale by √d_model": (H * D) ** -0.5, "scale inverted": D**0.5}
    for name, value in wrong.items():
        if bool(((factor / value - 1).abs() < 1e-4).all()):
            yield _BY_NAME[name]
