"""The course in a terminal: lists, one exercise, hints, and what is shown after success. Does not need torch."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.school.course.answers import NOT_WRITTEN, CheckedAnswer
from regard.school.course.courses import LEVELS, Lesson
from regard.school.course.learner import LearnerFolder
from regard.school.course.progress import ExerciseRecord
from regard.show.terminal.table import as_printed, shorten, text_columns, text_table, wrapped
from regard.support.drawing import as_text
from regard.support.printable import printable

if TYPE_CHECKING:
    from torch import Tensor

    from regard.school.course.certificate import RecheckedAnswer
    from regard.school.course.verification import LessonReport
    from regard.school.exercises.answer import DrawnPicture

_BAR = 30  # columns
_MOST_PRINTED = 30  # lines of what the learner's code printed
_SIGNS = {"right": "✓", "changed": "!", "wrong": "✗", "missing": "✗", "unchecked": "?"}
_NOT_INSTALLED = (
    "The wrong answers of our course were not checked: they are in wrong.txt files, which are in regard's repository "
    "and are not installed."
)
_COLORS = {"✓": "32", "✗": "31", "?": "33", "!": "33"}


def lesson_list(
    folder: LearnerFolder,
    width: int,
    chosen: Lesson | None = None,
    shown: Sequence[Lesson] | None = None,
    most: int | None = None,
) -> str:
    """Every exercise, chapter by chapter, with what was done.

    chosen: one that is marked. shown: these only. most: at most so many lines of them, around the chosen one.
    """
    lessons, records, current = folder.course.lessons, folder.records(), folder.current()
    rows = []
    for lesson, record in zip(lessons, records, strict=True):
        mark = "✓" if record.is_done else "→" if lesson == current else "·"
        help_used = _used(record.hints, record.solution, record.attempts)
        about = (
            [f"{lesson.about.minutes} min {lesson.about.level}"] if any(one.about.minutes for one in lessons) else []
        )
        rows.append([mark, str(lesson.number), lesson.name, lesson.title, *about, help_used])
    used = min(max(len(row[-1]) for row in rows), max(18, width // 3))
    table = text_table([], rows, width, cut={3: 12, len(rows[0]) - 1: used}).splitlines()
    lines, at = list[str](), 0
    for chapter in dict.fromkeys(one.chapter for one in lessons if shown is None or one in shown):
        lines += ["", f"  {chapter}"]
        for line, one in zip(table, lessons, strict=True):
            if one.chapter == chapter and (shown is None or one in shown):
                at = len(lines) if one == chosen else at
                lines.append(f">{line[1:]}" if one == chosen else line)
    first = max(0, min(at - (most or 0) // 2, len(lines) - (most or 0)))
    lines = lines[first : first + most] if most is not None else lines
    return "\n".join(
        [wrapped(f"{folder.course.title}: {_count(records)}", width), *lines, "", next_step(folder, width)]
    )


def course_status(folder: LearnerFolder, width: int) -> str:
    """How far the learner is: a bar, a line for each chapter, and what is next."""
    lessons, records = folder.course.lessons, folder.records()
    bar = min(_BAR, max(width - 20, 5))
    filled = bar * sum(one.is_done for one in records) // len(lessons)
    lines = [wrapped(folder.course.title, width), "", f"  {'█' * filled}{'·' * (bar - filled)}  {_count(records)}", ""]
    rows = []
    for chapter in dict.fromkeys(one.chapter for one in lessons):
        inside = [record for record, one in zip(records, lessons, strict=True) if one.chapter == chapter]
        hints, shown = sum(one.hints for one in inside), sum(one.solution != "" for one in inside)
        rows.append([chapter, f"{sum(one.is_done for one in inside)} of {len(inside)}", str(hints), str(shown)])
    lines.append(text_table(["chapter", "done", "hints", "solutions seen"], rows, width, cut={0: 12}))
    return "\n".join([*lines, "", next_step(folder, width)])


def next_step(folder: LearnerFolder, width: int, after: Lesson | None = None, how: str = "") -> str:
    """What to do next, with the command or key; `after` an exercise that was just done."""
    how = how or f"Go on: {folder.course.command}"
    lesson = folder.current() if after is None else folder.after(after)
    if lesson is None:
        count = len(folder.course.lessons)
        if folder.course.command != "regard learn":
            return wrapped(f"All {count} are done. What is next, and when: {folder.course.command}", width)
        return wrapped(f"All {count} exercises are done. For your teacher: regard learn status --json", width)
    then = f"{lesson.title}."
    if after is not None and lesson.number == after.number + 1:
        then = split_after(after.after)[1] or then
    return f"{wrapped(f'Next: {then}', width)}\n{wrapped(f'{shown_path(folder.file_of(lesson))}   {how}', width)}"


def lesson_heading(folder: LearnerFolder, lesson: Lesson, width: int, with_task: bool) -> str:
    """The exercise, its file and, on request, its task."""
    first = f"  Exercise {lesson.number} of {len(folder.course.lessons)} · {lesson.title}"
    lines = [shorten(as_printed(first), width), f"  {shown_path(folder.file_of(lesson))}"]
    if with_task:
        goal = " ".join(filter(None, (lesson.about.goal, f"({lesson.about})" if str(lesson.about) else "")))
        lines += ["", wrapped(f"Goal: {goal}", width)] if goal else []
        lines += ["", indented(lesson.task, width)]
    return "\n".join(lines)


def result_text(lesson: Lesson, checked: CheckedAnswer, width: int, with_ways: bool = True) -> str:
    """The verdict; after success also the explanation, the learner's own weights, and other ways."""
    verdict = checked.verdict
    if any(one.name == NOT_WRITTEN for one in verdict.findings):  # no mistake yet, so no red cross
        first = verdict.findings[0]
        place = shorten(f"    {Path(verdict.file).name}:{first.line}   {first.code}", width)
        return "\n\n".join(filter(None, [wrapped(f"· {first.says}", width), place, _note(checked, width)]))
    blocks = [_printed(verdict.printed, width), as_text(verdict, width)]
    if verdict.is_right:
        explanation, _ = split_after(lesson.after)
        blocks.append(indented(explanation, width))
        if verdict.drawn is not None:
            blocks.append(_words(verdict.drawn, width))
        else:
            blocks += [_picture(weights, width) for weights in verdict.pictures[:1]]
        blocks += [ways_text(lesson, width)] if with_ways else []
    return "\n\n".join(filter(None, [*blocks, _note(checked, width)]))


def _note(checked: CheckedAnswer, width: int) -> str:
    return wrapped(f"! {checked.note}", width, "  ", "    ") if checked.note else ""


def split_after(text: str) -> tuple[str, str]:
    """The explanation, and what its last line, "Next: the mask.", says is next."""
    explanation, found, then = f"\n{text}".rpartition("\nNext:")
    return (explanation if found else then).strip("\n"), then.strip() if found else ""


def _printed(text: str, width: int) -> str:
    lines = text.rstrip().splitlines()
    if (more := len(lines) - _MOST_PRINTED) > 0:
        lines[_MOST_PRINTED:] = [f"… and {more} lines more"]
    printed = indented("\n".join(lines), width, "    ", then="  ")
    return f"  Your code printed:\n{printed}" if lines else ""


def _picture(weights: Tensor, width: int) -> str:
    from regard.show.terminal.weights import weights_table

    matrix = weights.reshape(-1, *weights.shape[-2:])[0]
    queries, keys = ([f"{name} {i}" for i in range(size)] for name, size in zip("qk", matrix.shape, strict=True))
    about = wrapped("Your weights, a row for each query, a column for each key (· is 0):", width)
    return f"{about}\n{weights_table(matrix, queries, keys, width)}"


def _words(drawn: DrawnPicture, width: int) -> str:
    """Weights with words and shades; several heads side by side where they fit."""
    from regard.show.terminal.weights import shaded_table

    tables = [shaded_table(one, drawn.queries, drawn.keys) for one in drawn.weights]
    if len(tables) > 1:
        titled = [[f"{'':{len(one[0]) - len(one[0].lstrip())}}head {n}", *one] for n, one in enumerate(tables)]
        wide = [max(map(len, one)) for one in titled]
        beside = [
            "".join(f"{line:<{n + 1}}" for line, n in zip(row, wide, strict=True)) for row in zip(*titled, strict=False)
        ]
        fits = sum(wide) + len(wide) + 2 <= width
        lines = beside if fits else [line for one in titled for line in [*one, ""]]
    else:
        lines = tables[0]
    return f"{wrapped(drawn.says, width)}\n\n" + "\n".join(f"  {line}".rstrip() for line in lines)


def hints_text(lesson: Lesson, hints: Sequence[tuple[str, str]], width: int) -> str:
    of = f"of {sum(level in lesson.hints for level in LEVELS)}"
    numbered = enumerate(hints, 1)
    return "\n\n".join(f"  Hint {n} {of}, {level}:\n{indented(text, width, '    ')}" for n, (level, text) in numbered)


def ways_text(lesson: Lesson, width: int) -> str:
    ways = {name: indented(code, width, "    ", "    ") for name, code in lesson.ways.items()}
    return "\n\n".join(f"  Another way, {name}:\n\n{code}" for name, code in ways.items())


def indented(text: str, width: int, indent: str = "  ", then: str = "") -> str:
    r"""A text whose lines stay as they are; those that are too long are wrapped, and `then` indents what follows more.

    >>> print(indented("x = 1\n\nA line that is long.", 16))
      x = 1
    <BLANKLINE>
      A line that is
      long.
    """
    lines = []
    for line in map(as_printed, text.splitlines()):
        if text_columns(line) + len(indent) <= width:
            lines.append((indent + line).rstrip())
        else:
            inner = indent + " " * min(len(line) - len(line.lstrip()), width // 2)
            lines.append(wrapped(line.strip(), width, inner, inner + then))
    return "\n".join(lines)


def shown_path(path: Path) -> str:
    """A path as a person would type it here."""
    try:
        relative = os.path.relpath(path)
    except OSError:  # the current folder was removed
        return str(path)
    return str(path) if relative.startswith("..") else relative


def colored(text: str) -> str:
    """The text, made printable, with its verdicts in color; without where nobody would see it, or NO_COLOR is set."""
    text = printable(text)
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return re.sub(r"(?m)^  ([✓✗?!]) .*", lambda line: f"\x1b[{_COLORS[line[1]]}m{line[0]}\x1b[0m", text)


def _count(records: Sequence[ExerciseRecord]) -> str:
    return f"{sum(one.is_done for one in records)} of {len(records)} done"


def verified_course(reports: Sequence[LessonReport], faults: Sequence[tuple[str, str]], width: int) -> str:
    """What was found when a course checked itself: a row for each exercise, the faults, and a sentence."""
    rows = []
    for one in reports:
        named = "–" if one.wrong is None else str(one.wrong)
        rows.append(["✗" if one.faults else "✓", one.name, named, str(one.ways), f"{one.seconds:.2f} s"])
    names = ["", "exercise", "wrong answers named", "other ways", "longest check"]
    blocks = [text_table(names, rows, width, words=2, cut={1: 12})]
    if faults:
        blocks.append("\n".join(wrapped(f"✗ {name}: {one}", width, "  ", "    ") for name, one in faults))
    if any(one.wrong is None for one in reports):
        blocks.append(wrapped(_NOT_INSTALLED, width))
    wrong, ways = sum(one.wrong or 0 for one in reports), sum(one.ways for one in reports)
    found = f"{len(faults)} faults" if faults else "nothing is wrong"
    blocks.append(f"  {len(reports)} exercises, {wrong} wrong answers named, {ways} other ways: {found}.")
    return "\n\n".join(blocks)


def rechecked_table(certificate: dict[str, Any], results: Sequence[RecheckedAnswer], width: int) -> str:
    """The answers of a certificate that were run again."""
    claimed = {one["name"]: _used(one["hints"], one["solution_seen"]) for one in certificate["exercises"]}
    rows = [[_SIGNS[one.status], one.name, claimed[one.name], one.says] for one in results]
    return text_table(["", "exercise", "used", "run again"], rows, width, cut={1: 8, 2: 6, 3: 16})


def _used(hints: int, solution_seen: object, attempts: int = 0) -> str:
    words = [f"{hints} hint{'s' * (hints != 1)}"] if hints else []
    words += ["solution seen"] if solution_seen else []
    words += [f"{attempts} attempts"] if attempts > 1 else []
    return ", ".join(words)
