"""Soundness: is an exercise itself right? Every wrong answer must be wrong, and none may be taken for another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import combinations
from typing import Any

from regard.mistakes.formula import Formula
from regard.mistakes.search import MISTAKES
from regard.school.exercises.calling import arguments_of, call_own
from regard.school.exercises.comparing import is_same
from regard.school.exercises.exercise import Exercise
from regard.school.exercises.parts import Function, Judged, Layer, Question, Wrong
from regard.school.exercises.questions import plain_choice

RUNS = 3  # with different arguments, at least


def unsound(exercise: Exercise, seed: int = 0) -> list[str]:
    """What is wrong with an exercise, in sentences; none where it is sound."""
    result = []
    for part in exercise.parts:
        check = {Function: _function, Judged: _judged, Question: _question, Layer: _layer}[type(part)]
        result += [f"{part.name}: {sentence}" for sentence in check(part, seed)]  # type: ignore[operator]
    names = [part.name for part in exercise.parts if isinstance(part, Question)]
    return result + [
        f"{name}: two questions have this name" for name in sorted({n for n in names if names.count(n) > 1})
    ]


def _function(part: Function, seed: int) -> Iterator[str]:
    try:
        runs = [arguments_of(part, seed + run) for run in range(max(part.runs, RUNS))]
    except Exception as error:
        yield f"its arguments fail: {_said(error)}"
        return
    try:
        right = [call_own(part.right, arguments, seed + i) for i, arguments in enumerate(runs)]
    except Exception as error:
        yield f"right fails: {_said(error)}"
        return
    if not _same(right, right, part):
        yield "what right returns cannot be compared; return tensors, numbers, texts, or lists and dicts of these"
        return
    if part.picture not in ("", "weights"):
        yield f"picture ({part.picture}) must be empty or weights"
    results: dict[str, list[Any]] = {}
    for wrong in part.wrong:
        problem, acted = _wrong(wrong, part, runs, right, seed)
        if problem:
            yield f"{wrong.name}: {problem}"
        elif acted is not None:
            results[wrong.name] = acted
    for one, other in combinations(results, 2):
        if _same(results[one], results[other], part):
            yield f"{one} and {other} are the same function for these arguments; choose others, or leave one out"
    for name in sorted({one.name for one in part.wrong if [w.name for w in part.wrong].count(one.name) > 1}):
        yield f"two wrong answers are called {name}"


def _wrong(
    wrong: Wrong, part: Function, runs: Sequence[tuple[Any, ...]], right: list[Any], seed: int
) -> tuple[str, list[Any] | None]:
    """What is wrong with a wrong answer, and its results."""
    try:
        wrong.says.format(*runs[0])
    except (IndexError, KeyError, ValueError) as error:
        return f"says has a place for no argument: {_said(error)}; braces are written twice", None
    if wrong.act is None:
        return ("" if wrong.raises else "it has neither act nor raises"), None
    try:
        acted = [call_own(wrong.act, arguments, seed + i) for i, arguments in enumerate(runs)]
    except Exception as error:
        return f"act fails: {_said(error)}", None
    return ("it is right for these arguments" if _same(acted, right, part) else ""), acted


def _same(one: Sequence[Any], other: Sequence[Any], part: Function) -> bool:
    return all(is_same(a, b, part.tolerance) for a, b in zip(one, other, strict=True))


def _judged(part: Judged, seed: int) -> Iterator[str]:
    try:
        arguments_of(part, seed)
    except Exception as error:
        yield f"its arguments fail: {_said(error)}"


def _question(part: Question, seed: int) -> Iterator[str]:
    choices = [plain_choice(one) for one in part.because]
    if plain_choice(part.right) in choices:
        yield f"because has a reason against {part.right}, which is right"
    if len(set(choices)) < len(choices):
        yield "because has a choice twice"
    yield from (f"because has no reason for {choice}" for choice, reason in part.because.items() if not reason.strip())


def _layer(part: Layer, seed: int) -> Iterator[str]:
    steps = [one.name for one in fields(Formula)]
    known = {one.name for one in MISTAKES}
    for one in part.mistakes:
        if one.step not in steps:
            yield f"{one.name}: step ({one.step}) must be one of {', '.join(steps)}"
        if one.name in known:
            yield f"{one.name}: a known mistake has this name"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
