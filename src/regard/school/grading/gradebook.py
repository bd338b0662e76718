"""The gradebook: who handed in what, late days, and what a teacher changed by hand.

The roster is a CSV file with a column student, and where they are known id, email, late_days (free ones of this
student) and submitted (when it was handed in). Overrides are a CSV file with student, points, reason and, for one task
only, task. Other columns are ignored.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from regard.school.grading.class_report import Grade, clean, points_text
from regard.school.grading.key import ClassRules, GradeKey
from regard.school.grading.rubric import RIGHT, PartScore, TaskScore, score_task

LARGEST = 16 << 20  # bytes of a roster
MOST_FILES = 2000  # of a folder whose newest is looked for
SUFFIXES = (".py", ".ipynb", ".zip")


@dataclass(frozen=True)
class RosterRow:
    """A student of the class."""

    student: str
    id: str = ""
    email: str = ""
    late_days: int | None = None
    submitted: datetime | None = None

    @property
    def keys(self) -> list[str]:
        """What the name of a submission may have to say that it is this student's."""
        return [one.casefold() for one in (self.student, self.id, self.email, self.email.partition("@")[0]) if one]


@dataclass(frozen=True)
class HandMadeGrade:
    """Points that a teacher gave by hand."""

    student: str
    points: float | int
    reason: str
    task: str = ""
    is_extra: bool = False  # may it be more than there is to reach?


class Gradebook:
    """Gives each grade its student, its points and its late days.

    names: of all submissions, so that an override for somebody who is not there is refused before anything runs.
    """

    def __init__(self, key: GradeKey, names: Sequence[str]) -> None:
        self.key, self.rules = key, key.rules
        self.roster = read_roster(Path(self.rules.roster)) if self.rules.roster else []
        self.overrides = read_overrides(Path(self.rules.overrides)) if self.rules.overrides else []
        self.owners = {name: find_student(name, self.roster) for name in names}
        people = {one.student for one in self.roster} | set(names) | {stem_of(name) for name in names}
        titles = [one.called for one in key.each]
        for one in self.overrides:
            if one.student not in people:
                raise ValueError(f"{self.rules.overrides}: {one.student} is no submission and not in the roster")
            if one.task and one.task not in titles:
                raise ValueError(f"{self.rules.overrides}: {one.task} is no task; the key has {', '.join(titles)}")
            most = sum(_nothing(task).of for task in key.each if one.task in ("", task.called))
            if key.has_points and one.points > most and not one.is_extra:
                raise ValueError(
                    f"{self.rules.overrides}: {one.student} gets {points_text(one.points)} points for "
                    f"{one.task or 'everything'}, which has {points_text(most)}; give at most {points_text(most)}, "
                    "or write yes into a column extra where it is extra credit"
                )

    def enter(self, grade: Grade, name: str, handed_in: float | int | None) -> Grade:
        """The grade with its student and its points; name and handed_in: of the submission, the latter as time.time."""
        row = self.owners.get(name) or RosterRow("")
        notes = [] if row.student or not self.roster else ["not in the roster"]
        if row.student and sum(one is not None and one.student == row.student for one in self.owners.values()) > 1:
            notes.append(f"{row.student} handed in more than once")
        return self._entered(grade, row, (row.student, name, stem_of(name)), handed_in, notes)

    def missing(self) -> list[Grade]:
        """A grade for everybody in the roster who handed in nothing."""
        there = {row.student for row in self.owners.values() if row is not None}
        grade = Grade("", "missing", problem="nothing handed in", scores=tuple(map(_nothing, self.key.each)))
        absent = [replace(row, submitted=None) for row in self.roster if row.student not in there]
        return [self._entered(grade, row, (row.student,), None, []) for row in absent]

    def _entered(
        self, grade: Grade, row: RosterRow, names: Sequence[str], handed_in: float | int | None, notes: list[str]
    ) -> Grade:
        days = days_late(self.rules, row, handed_in)
        free = self.rules.late_days if row.late_days is None else row.late_days
        share = max(0.0, 1.0 - self.rules.penalty * max(0, days - free))
        if days:
            less = "" if share == 1 else f": −{points_text(100 - 100 * share)} %"
            notes = [*notes, f"{days} {'day' if days == 1 else 'days'} late, {free} free{less}"]
        mine = [one for one in self.overrides if one.student in names]
        scores, said = _overridden(grade.scores, [one for one in mine if one.task])
        points = round(sum(one.points for one in scores) * share, 2)
        undecided = sum(one.open for one in scores)
        for one in (one for one in mine if not one.task):
            said.append(f"points {points_text(one.points)}, not {points_text(points)}: {one.reason}")
            points, undecided = one.points, 0.0
        return replace(
            grade, scores=scores, points=points, open=undecided, days_late=days, override="; ".join(said),
            notes=tuple(notes), student=clean(row.student), id=clean(row.id), email=clean(row.email),
        )  # fmt: skip


def _nothing(task: GradeKey) -> TaskScore:
    score = score_task(task.called, [], task.points, task.rubric)
    return TaskScore(score.title, (PartScore("all", "wrong", 0.0, score.of, "nothing handed in"),))


def _overridden(
    scores: Sequence[TaskScore], overrides: Sequence[HandMadeGrade]
) -> tuple[tuple[TaskScore, ...], list[str]]:
    """The scores with tasks that were changed by hand, and what is said of them."""
    changed, said = {one.title: one for one in scores}, []
    for one in overrides:
        score = changed[one.task]
        part = PartScore("changed by hand", RIGHT, one.points, score.of, one.reason)
        said.append(f"{one.task} {points_text(one.points)}, not {points_text(score.points)}: {one.reason}")
        changed[one.task] = replace(score, parts=(part,))
    return tuple(changed.values()), said


def handed_in(path: Path) -> float:
    """When a submission was last changed: the time of its file, or of the newest file in its folder."""
    newest = path.lstat().st_mtime
    if path.is_dir() and not path.is_symlink():
        files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        newest = max((file.lstat().st_mtime for file in islice(files, MOST_FILES)), default=newest)
    return newest


def days_late(rules: ClassRules, row: RosterRow, handed_in: float | int | None) -> int:
    """Days after the deadline, each of them counted when it begins. The roster knows better than the file's time."""
    if rules.deadline is None or (row.submitted is None and handed_in is None):
        return 0
    deadline = rules.deadline if rules.deadline.tzinfo else rules.deadline.astimezone()
    moment = row.submitted or datetime.fromtimestamp(handed_in or 0.0, deadline.tzinfo)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=deadline.tzinfo)
    return max(0, math.ceil((moment - deadline) / timedelta(days=1)))


def stem_of(name: str) -> str:
    """The name of a submission without .py, .ipynb or .zip.

    >>> stem_of("ana.PY"), stem_of("homework-ana")
    ('ana', 'homework-ana')
    """
    stem, dot, suffix = name.rpartition(".")
    return stem if stem and f"{dot}{suffix}".lower() in SUFFIXES else name


def find_student(name: str, roster: Sequence[RosterRow]) -> RosterRow | None:
    """Whose submission this is: its name is, or has as a part, what the roster says; None unless it is one student.

    >>> find_student("homework-ana-m.py", [RosterRow("ana"), RosterRow("ana-m")]).student
    'ana-m'
    """
    stem = stem_of(name).casefold()
    matches: dict[int, list[RosterRow]] = {}
    for row in roster:
        lengths = [len(k) for k in row.keys if re.search(rf"(?<![^\W_]){re.escape(k)}(?![^\W_])", stem)]
        if lengths:
            matches.setdefault(max(lengths), []).append(row)
    best = matches[max(matches)] if matches else []
    return best[0] if len(best) == 1 else None


def read_roster(path: Path) -> list[RosterRow]:
    """The students of a class, from a CSV file."""
    rows = []
    for line, one in _rows(path, "student"):
        days, when = one.get("late_days", ""), one.get("submitted", "")
        if days and not days.isdecimal():
            raise ValueError(f"{path}, line {line}: late_days ({days}) must be a whole number")
        try:
            moment = datetime.fromisoformat(when.replace("Z", "+00:00")) if when else None
        except ValueError:
            raise ValueError(f"{path}, line {line}: submitted ({when}) must be as 2026-11-20T23:59:00") from None
        rows.append(
            RosterRow(one["student"], one.get("id", ""), one.get("email", ""), int(days) if days else None, moment)
        )
    names = [row.student for row in rows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path}: {twice[0]} is there twice; every student has one line")
    return rows


def read_overrides(path: Path) -> list[HandMadeGrade]:
    """What a teacher changed by hand, from a CSV file; every change has its reason."""
    result = []
    for line, one in _rows(path, "student", "points", "reason"):
        try:
            points = float(one["points"])
        except ValueError:
            points = math.nan
        if not 0 <= points < math.inf:
            raise ValueError(f"{path}, line {line}: points ({one['points']}) must be a number of at least 0")
        if not one["reason"]:
            raise ValueError(f"{path}, line {line}: {one['student']} has no reason; say why the points were changed")
        if (extra := one.get("extra", "").casefold()) not in ("", "yes", "no"):
            raise ValueError(f"{path}, line {line}: extra ({one['extra']}) must be yes or no")
        reason, task = clean(one["reason"]), one.get("task", "")
        result.append(HandMadeGrade(one["student"], points, reason, task, extra == "yes"))
    return result


def _rows(path: Path, *needed: str) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with their lines; columns are separated by commas or semicolons."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path} has {path.stat().st_size} bytes; at most {LARGEST}")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; save it as CSV UTF-8") from None
    head = lines[0] if lines else ""
    reader = csv.reader(lines, delimiter=";" if head.count(";") > head.count(",") else ",")
    columns = [one.strip().lower() for one in next(reader, [])]
    if lacks := [name for name in needed if name not in columns]:
        raise ValueError(f"{path}: its first line must name the columns {', '.join(needed)}; {lacks[0]} is missing")
    rows = []
    for row in reader:
        if any(cell.strip() for cell in row):
            cells = dict(zip(columns, (cell.strip() for cell in row), strict=False))
            if not all(name in cells for name in needed) or not cells[needed[0]]:
                raise ValueError(f"{path}, line {reader.line_num}: {', '.join(needed)} must all be there")
            rows.append((reader.line_num, cells))
    return rows
