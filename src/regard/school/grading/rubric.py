"""The rubric: points for the parts of a layer, by what its verdict shows to be right, wrong or not reached.

A mistake that is named gives exactly the numbers of the formula with this one mistake, so every other part is right. A
difference without a name leaves open what comes after it, and a layer that fails leaves everything else open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.school.check.verdict import Verdict
from regard.school.sandbox.outcome import printable_text

RIGHT, WRONG, OPEN = "right", "wrong", "not reached"
STATES = {"right": RIGHT, "wrong": WRONG, "unchecked": OPEN}  # of a task without a rubric, by its verdict
# The parts in the order of the formula: the steps and the mistakes without a step that belong to each.
PARTS: dict[str, tuple[str, ...]] = {
    "runs": ("does not run", "super().__init__() missing", "out of memory"),
    "shapes": (
        "queries", "keys", "values", "split", "shared keys", "shared values", "hard-coded sizes",
        "sequence longer than the context", "attention over the batch instead of the tokens",
    ),
    "scores": ("scores", "scaled"),
    "mask": ("mask",),
    "weights": ("weights", "dropout"),
    "merge": ("context", "concat"),
    "out": ("out",),  # also the residuals and norms of a block, and what differs at other sizes only
    "gradients": (
        "wrong parameter count", "in-place change of the caller's input", "in-place change of the caller's mask",
    ),
}  # fmt: skip
PART_OF = {one: part for part, ones in PARTS.items() for one in ones}
NOTHING_ASKED_FOR = ("another task",)  # right in itself, but worth nothing here
LONGEST_TEXT = 20_000  # characters of the verdicts on a task
NOT_COMPARED = ("", "an attention layer")  # the task of a verdict on a layer that gave no output


@dataclass(frozen=True)
class PartScore:
    """The points for one part of a task."""

    name: str
    state: str  # right, wrong or not reached
    points: float | int
    of: float | int
    why: str = ""


@dataclass(frozen=True)
class TaskScore:
    """The points for one task, and the verdict on it as a text."""

    title: str
    parts: tuple[PartScore, ...]
    text: str = ""

    @property
    def points(self) -> float | int:
        """The sum over the parts."""
        return sum(one.points for one in self.parts)

    @property
    def of(self) -> float | int:
        """The most that can be reached."""
        return sum(one.of for one in self.parts)

    @property
    def open(self) -> float | int:
        """Points that nothing was found out about."""
        return sum(one.of for one in self.parts if one.state == OPEN)


def part_states(verdict: Verdict | Mapping[str, Any], of_exercise: Sequence[str] = ()) -> dict[str, str]:
    """Which parts of a layer are right, wrong or not reached.

    >>> from regard.school.check.verdict import Finding
    >>> states = part_states(Verdict("A", "self-attention", [Finding("no scale", "…", step="scaled")]))
    >>> [part for part, state in states.items() if state != "right"]
    ['scores']

    of_exercise: the parts of a teacher's own exercise, in their order; the first that is wrong hides those after it.
    """
    values = verdict.as_json() if isinstance(verdict, Verdict) else verdict
    names = list(of_exercise or PARTS)
    if values["status"] == "unchecked":
        return dict.fromkeys(names, OPEN)
    states = dict.fromkeys(names, RIGHT)
    for one in values["findings"]:
        if one["kind"] == "mistake":
            later = _exercise_states if of_exercise else _layer_states
            states = {name: min(states[name], state, key=_gravity) for name, state in later(values, one, names).items()}
    return states


def _gravity(state: str) -> int:
    return (WRONG, OPEN, RIGHT).index(state)


def _layer_states(verdict: Mapping[str, Any], finding: Mapping[str, Any], names: list[str]) -> dict[str, str]:
    """What one finding shows about every part."""
    name, step = finding["name"], finding["step"]
    if name in NOTHING_ASKED_FOR:
        return dict.fromkeys(names, WRONG)
    if verdict["task"] in NOT_COMPARED:
        part = PART_OF.get(name) or PART_OF.get(step if name else "") or ("shapes" if step else "runs")
        return dict.fromkeys(names, OPEN) | {part: WRONG}
    part = PART_OF.get(name) or PART_OF.get(step) or ("out" if not step or name else "runs")
    later = names[names.index(part) :] if step and not name else []
    return dict.fromkeys(names, RIGHT) | dict.fromkeys(later, OPEN) | {part: WRONG}


def _exercise_states(verdict: Mapping[str, Any], finding: Mapping[str, Any], names: list[str]) -> dict[str, str]:
    """The same for an exercise: parts are checked in order, up to the first that is wrong."""
    known = [one for one in (verdict["name"], finding["name"].partition(":")[0]) if one in names]
    if not known:
        return dict.fromkeys(names, OPEN)
    wrong = names.index(known[0])
    return {name: (RIGHT, WRONG, OPEN)[(i > wrong) + (i >= wrong)] for i, name in enumerate(names)}


def score_task(
    title: str,
    verdicts: Sequence[Mapping[str, Any]],
    points: float | int = 0.0,
    rubric: Mapping[str, float | int] | None = None,
    is_exercise: bool = False,
) -> TaskScore:
    """The points for a task, from the verdicts on all its layers; without a rubric, all of them or none."""
    shares = dict(rubric or {"all": 1.0})
    total = points or sum(shares.values())
    text = "\n\n".join(one.get("text", "") for one in verdicts).strip("\n")
    named = list(shares) if is_exercise else ()
    states, why = dict.fromkeys(shares, RIGHT), dict.fromkeys(shares, "")
    for verdict in verdicts:
        found = part_states(verdict, named) if rubric else {"all": STATES[verdict["status"]]}
        states = {name: min(states[name], found[name], key=_gravity) for name in shares}
        for one in (one for one in verdict["findings"] if one["kind"] == "mistake"):
            alone = part_states({**verdict, "findings": [one]}, named) if rubric else {"all": WRONG}
            line = f" (line {one['line']})" if one["line"] else ""
            reason = f"{one['name'] or 'unknown mistake'}{line}"
            why |= {
                name: f"{why[name]}; {reason}" for name in shares if alone[name] == WRONG and reason not in why[name]
            }
    parts = []
    for name, share in shares.items():
        of = share * total / sum(shares.values())
        parts.append(PartScore(name, states[name], of * (states[name] == RIGHT), of, why[name].removeprefix("; ")))
    return TaskScore(title, tuple(parts), printable_text(text, LONGEST_TEXT).expandtabs())


def points_for(verdict: Verdict, rubric: Mapping[str, float | int]) -> float:
    """The points of a verdict, as a number: the last line of a cell that nbgrader grades.

    >>> points_for(Verdict("A", "self-attention"), {"scores": 3, "mask": 2})
    5.0
    """
    if unknown := [name for name in rubric if name not in PARTS]:
        raise ValueError(f"rubric has no {', '.join(unknown)}; it may have {', '.join(PARTS)}")
    return round(score_task("", [verdict.as_json()], rubric=rubric).points, 2)
