"""Soundness: is an exercise itself right? Every wrong answer must be wrong, and none may be taken for another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import combinations
from typing import Any

from regard.mistakes.formula import Formula
from regard.mistakes.search import MISTAKES
from regard.school.exercises.calling import arguments_of, call_own
from regard.school.exercises.comparing import is_same, plain_choice
from regard.school.exercises.exercise import Exercise, Function, Judged, Layer, Question, Wrong

RUNS = 3  # with different arguments, at least


def unsound(exercise: Exercise, seed: int = 0) -> list[str]:
    """What is wrong with an exercise, in sentences; none where it is sound."""
    result = []
    for part in exercise.parts:
        try:
            check = {Function: _function, Judged: _judged, Question: _question, Layer: _layer}[type(part)]
            result += [f"{part.name}: {sentence}" for sentence in check(part, seed)]  # type: ignore[operator]
        except ValueError as error:
            result.append(f"{part.name}: {error}")
    questions = Counter(part.name for part in exercise.parts if isinstance(part, Question))
    return result + [f"{name}: two questions have this name" for name, count in questions.items() if count > 1]


def _function(part: Function, seed: int) -> Iterator[str]:
    with _failures("its arguments fail"):
        runs = [arguments_of(part, seed + run) for run in range(max(part.runs, RUNS))]
    with _failures("right fails"):
        right = [call_own(part.right, arguments, seed + run, part.through) for run, arguments in enumerate(runs)]
    if not _same(right, right, part):
        yield "what right returns cannot be compared; return tensors, numbers, texts, or lists and dicts of these"
        return
    if part.picture not in ("", "weights"):
        yield f"picture ({part.picture}) must be empty or weights"
    results: dict[str, list[Any]] = {}
    for wrong in part.wrong:
        try:
            results[wrong.name] = _wrong(wrong, part, runs, right, seed)
        except ValueError as error:
            yield f"{wrong.name}: {error}"
    for one, other in combinations([name for name, acted in results.items() if acted], 2):
        if _same(results[one], results[other], part):
            yield f"{one} and {other} are the same function for these arguments; choose others, or leave one out"
    names = Counter(one.name for one in part.wrong)
    yield from (f"two wrong answers are called {name}" for name, count in names.items() if count > 1)


def _wrong(wrong: Wrong, part: Function, runs: list[tuple[Any, ...]], right: list[Any], seed: int) -> list[Any]:
    """The results of a wrong answer, none if it is one that fails; ValueError says what is wrong with it."""
    with _failures("says has a place for no argument", "; braces are written twice"):
        wrong.says.format(*runs[0])
    if wrong.act is None and not wrong.raises:
        raise ValueError("it has neither act nor raises")
    if wrong.act is None:
        return []
    with _failures("act fails"):
        acted = [call_own(wrong.act, arguments, seed + run, part.through) for run, arguments in enumerate(runs)]
    if _same(acted, right, part):
        raise ValueError("it is right for these arguments")
    return acted


@contextmanager
def _failures(what: str, remedy: str = "") -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ValueError(f"{what}: {type(error).__name__}: {error}{remedy}") from error


def _same(one: Sequence[Any], other: Sequence[Any], part: Function) -> bool:
    return all(is_same(a, b, part.tolerance) for a, b in zip(one, other, strict=True))


def _judged(part: Judged, seed: int) -> list[str]:
    with _failures("its arguments fail"):
        arguments_of(part, seed)
    return []


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
