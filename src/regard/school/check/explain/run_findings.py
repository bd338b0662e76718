"""Run findings: what is wrong in the parts of a layer that were found in its run, by the names that people know."""

from __future__ import annotations

import re

import torch

from regard.mistakes.mistake import Mistake
from regard.mistakes.search import MISTAKES
from regard.school.check.compare.anatomy import Anatomy
from regard.school.check.compare.experiment import Experiment
from regard.school.check.compare.run_reading import (
    MIXED_PAIRS,
    ON_ONE_SIDE,
    ON_VALUES,
    SAME_WEIGHTS,
    SHARED_IN_TURNS,
    doubts,
    knows_factors,
)
from regard.school.check.compare.scale_reading import NOT_SCALED, ONE_NORMED, OVER, is_near, promises_both_norms
from regard.school.check.compare.scoring import AFTER_MASK, NOT_BACK
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
PAIRS = known(
    "rotary pairs mixed up",
    "Two numbers of a vector are turned together, by one angle: where the table of angles repeats its numbers next to "
    "each other, neighbours are a pair; where it repeats them as a whole, those half a vector apart are.",
    "angles = torch.cat((angles, angles), dim=-1)  # with rotate_half; repeat_interleave(2, dim=-1) with neighbours",
    "queries",
)
TWICE = known(
    "one projection used twice",
    "A query asks, a key is what it is compared with, and a value is what is handed over: each has its own weights.",
    "q, k, v = self.qkv(x).chunk(3, dim=-1)",
    "values",
)
_COPIED = "are x itself"
CAP = known(
    "soft cap not multiplied back",
    "tanh is never larger than 1: without the cap before it, all scores are nearly equal, and the weights flat.",
    "scores = cap * torch.tanh(scores / cap)",
    "scaled",
)
CAPPED_MASK = known(
    "soft cap after the mask",
    "tanh(−∞) is −1: what was hidden gets the score −cap, and is seen again.",
    "scores = cap * torch.tanh(scores / cap)  # and then hide the future",
    "mask",
)
OTHER_AXIS = known(
    "queries and keys normalised over the wrong axis",
    "Each query and each key is a vector of head_dim numbers: its length is what a norm takes away.",
    "queries = F.rms_norm(queries, (head_dim,))  # the last axis of (B, num_heads, T, head_dim)",
    "queries",
)
ONE_NORM = known(
    "only queries or only keys normalised",
    "A score is bounded only where both vectors of its product are.",
    "queries, keys = self.norm_q(queries), self.norm_k(keys)",
    "queries",
)
ONE_ROOT = known(
    "scale on one side only",
    "√√head_dim divides queries and keys, so that their product is divided by √head_dim.",
    "queries, keys = queries * head_dim**-0.25, keys * head_dim**-0.25",
    "scaled",
)
PART = known(
    "scale by a part of the width",
    "A score is a sum over all numbers of a query, the rotated ones and the others.",
    "scores = scores / (nope_dim + rope_dim) ** 0.5",
    "scaled",
)
_MOVES = ("transpose", "permute", "mT", "T", "contiguous", "view", "reshape", "expand", "movedim", "swapaxes")
_BY_NAME = {one.name: one for one in MISTAKES}


def wrong_parts(result: Experiment) -> list[Finding]:
    """The mistakes that the parts of a run prove; none where one of them has no name."""
    found = result.anatomy
    if found is None:
        return []
    points = list(doubts(result, found))
    if any(point in SAME_WEIGHTS or point.endswith(_COPIED) for point in points):  # then others are left over
        points = [point for point in points if not point.startswith("a part of")]
    each = [_finding(result, found, point) for point in points]
    return [one for one in each if one is not None] if all(each) else []


def _finding(result: Experiment, found: Anatomy, doubt: str) -> Finding | None:
    if doubt in (ON_VALUES, ON_ONE_SIDE, MIXED_PAIRS):
        return _rotated(found, doubt) if names_rotary(result.text) else None
    if doubt == NOT_SCALED and knows_factors(found):
        return _wrong_scale(result, found)
    if doubt in (NOT_BACK, AFTER_MASK) and re.search(
        r"(?i)soft.?cap|\bcap(s|ped|ping)?\b|_cap\b|max_?logit", result.text
    ):
        line = next((call.line for call in reversed(found.seen.forward) if call.name == "tanh"), 0)
        says = "The scores are tanh(scores / cap), between −1 and 1; the cap is not multiplied back."
        hidden = (
            f"What the mask hides gets the score −{found.scoring.cap:g}, and is seen: the cap comes after the mask."
        )
        return CAP.found(says, line) if doubt == NOT_BACK else CAPPED_MASK.found(hidden, line)
    if doubt.startswith(OVER):
        says = f"{doubt[0].upper()}{doubt[1:]}, not over the head_dim numbers of each vector."
        return OTHER_AXIS.found(says, _line(found, "queries"))
    if doubt == ONE_NORMED and promises_both_norms(result):
        done, other = ("queries", "keys") if found.queries.is_normed else ("keys", "queries")
        return ONE_NORM.found(f"The {done} are normalised, the {other} are not.", _line(found, other))
    if doubt.endswith(_COPIED):
        return _of_case(_BY_NAME[f"not projected: the {doubt.removeprefix('its ')}"], result, found.head.mixed.line)
    if doubt in SHARED_IN_TURNS:
        return _of_case(_BY_NAME["repeat and interleave confused"], result, found.head.compared.line)
    if doubt in SAME_WEIGHTS:
        first, second = SAME_WEIGHTS[doubt]
        says = f"The {second} are made with the weights of the {first}."
        name = f"one projection used twice: the {second} are made with the weights of the {first}"
        return TWICE.found(says, _line(found, second), name=name)
    return None


def _rotated(found: Anatomy, doubt: str) -> Finding:
    """What is wrong in how positions rotate queries, keys or values."""
    if doubt == ON_VALUES:
        return VALUES.found("The values are rotated by their positions, like queries and keys.", found.head.mixed.line)
    if doubt == ON_ONE_SIDE:
        side = "queries" if found.queries.map.has_positions else "keys"
        return ONE_SIDE.found(f"Only the {side} are rotated by their positions.", found.head.compared.line)
    says = "The two numbers of a pair are not rotated by the same angle, so that a score depends on more than "
    return PAIRS.found(f"{says}the distance of its tokens.", _line(found, "queries"))


def _line(found: Anatomy, word: str) -> int:
    """The line at which queries, keys or values get their numbers; what only moves them is not asked."""
    one, operand = (found.head.mixed, 1) if word == "values" else (found.head.compared, word == "keys")
    calls, number = found.seen.recorded, one.operands[operand]
    while calls[number].name in _MOVES and calls[number].inputs and calls[number].line == one.line:
        number = calls[number].inputs[0]
    return calls[number].line or one.line


def _wrong_scale(result: Experiment, found: Anatomy) -> Finding | None:
    """A scale that is a number with a name, is on one side only, or is made of a part of the width."""
    H, D, line = found.head.q.shape[1], found.head.q.shape[-1], found.head.compared.line
    wrong = {"no scale": 1.0, "missing root": 1 / D, "scale by √d_model": (H * D) ** -0.5, "scale inverted": D**0.5}
    for name, value in wrong.items():
        if is_near(found.scale, value):
            return _of_case(_BY_NAME[name], result, line)
    if is_near(found.scale, D**-0.25) and found.queries.factor != found.keys.factor:
        says = f"Only one of queries and keys is divided by √√{D}; the scores are not divided by √{D}."
        return ONE_ROOT.found(says, _line(found, "keys" if found.keys.factor == 1 else "queries"))
    attributes = result.observation.contents.get("attributes", {})
    parts = [v for v in attributes.values() if type(v) is int and 1 < v < D and is_near(found.scale, v**-0.5)]
    rows = torch.cat([made.map.weight.abs().amax((0, -1)).flatten() for made in (found.queries, found.keys)])
    if parts and names_rotary(result.text) and bool((rows > 1e-9).all()):  # 0: they were only made wider
        return PART.found(f"The scores are divided by √{parts[0]}; queries and keys are {D} numbers wide.", line)
    return None


def _of_case(mistake: Mistake, result: Experiment, line: int) -> Finding:
    says = mistake.describe(result.case)
    return Finding(mistake.name, says, mistake.why, mistake.fix, mistake.shows, line)
