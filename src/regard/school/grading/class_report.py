"""The grades of a class: one verdict for each submission, and which mistakes were made how often."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.school.grading.rubric import TaskScore
from regard.school.grading.similar import SimilarPair
from regard.school.sandbox.outcome import printable_text
from regard.school.sandbox.protection import ProtectionReport
from regard.support.drawing import as_text

UNKNOWN = "unknown mistake"
# What a spreadsheet takes for a formula; also inside a text, where it separates columns in another way.
FORMULA = re.compile(r'((?:^|[;,|"])\s*)([=+@\-＝＋－＠])')
LONGEST = 2000  # characters of a text that a submission can influence
# The columns of the CSV: is it about points?
COLUMNS = {
    "submission": False, "status": False, "mistakes": False, "lines": False, "problem": False, "checked": False,
    "points": True, "of": True, "not checked": True, "days late": True, "override": True, "notes": True,
}  # fmt: skip


@dataclass(frozen=True)
class GradedMistake:
    """A mistake of a submission: its name, what was seen, and the line."""

    name: str  # UNKNOWN where no known mistake explains what was seen
    says: str
    line: int = 0
    code: str = ""


@dataclass(frozen=True)
class Grade:
    """The verdict on one submission."""

    submission: str
    status: str  # right, wrong, unchecked, or missing: somebody in the roster who handed in nothing
    checked: str = ""  # the class or function, and what it is
    mistakes: tuple[GradedMistake, ...] = ()
    problem: str = ""  # why it, or one of its tasks, could not be checked
    warnings: tuple[str, ...] = ()
    seconds: float | int = 0.0
    scores: tuple[TaskScore, ...] = ()
    student: str = ""  # from the roster, as are id and email
    id: str = ""
    email: str = ""
    days_late: int = 0
    points: float | int | None = None  # after late days and overrides
    open: float | int = 0.0  # points that a person has to decide about
    override: str = ""  # what was changed by hand, and why
    notes: tuple[str, ...] = ()

    @property
    def of(self) -> float | int:
        """The most points that can be reached."""
        return sum(one.of for one in self.scores)

    @property
    def says(self) -> str:
        """The verdict in a line: the mistakes, or why it could not be checked, or what it is."""
        named = [f"{one.name}{f' (line {one.line})' if one.line else ''}" for one in self.mistakes]
        warned = [f"but {one.partition(':')[0]}" for one in self.warnings]
        unsaid = [self.problem] if self.problem else []
        return "; ".join([*named, *unsaid]) or "; ".join([self.checked, *warned])


@dataclass(frozen=True)
class ClassReport:
    """The grades of all submissions, in the order of their names."""

    grades: list[Grade]
    protection: ProtectionReport = field(default_factory=ProtectionReport)
    has_points: bool = False  # does the key say what things are worth?
    ignored: list[str] = field(default_factory=list)  # entries that are files of the system
    similar: list[SimilarPair] = field(default_factory=list)

    def count(self, status: str) -> int:
        """How many have this status."""
        return sum(one.status == status for one in self.grades)

    @property
    def mistakes(self) -> list[tuple[str, list[str]]]:
        """Each mistake that was made and who made it, the most frequent first."""
        who: dict[str, list[str]] = {}
        for grade in self.grades:
            for name in dict.fromkeys(one.name for one in grade.mistakes):
                who.setdefault(name, []).append(grade.submission)
        return sorted(who.items(), key=lambda one: (-len(one[1]), one[0]))

    def as_json(self, times: bool = True) -> dict[str, Any]:
        """Everything in plain values; without times and protection, it is the same on every run."""
        grades = [asdict(one) | {"of": one.of} for one in self.grades]
        layers = {"active": list(self.protection.active), "missing": dict(self.protection.missing)}
        return {
            "counts": dict(Counter(one.status for one in self.grades)),
            "mistakes": dict(self.mistakes),
            "similar": [one._asdict() for one in self.similar],
            "ignored": self.ignored,
            **({"protection": layers} if times else {}),
            "grades": [{k: v for k, v in one.items() if times or k != "seconds"} for one in grades],
        }

    def as_csv(self, times: bool = True) -> str:
        """One row for each submission; several mistakes are separated by semicolons. Points only where the key has any.

        Without times, it is the same on every run.
        """
        columns = [name for name, is_points in COLUMNS.items() if self.has_points or not is_points]
        if self.has_points or any(one.student for one in self.grades):
            columns = [*columns, "student", "id", "email"]
        scored = max((one.scores for one in self.grades), key=len, default=()) if self.has_points else ()
        titles = [one.title for one in scored]
        rows = [[*columns, *titles, *["seconds"] * times]]
        for one in self.grades:
            cells = _cells(one)
            scores = {score.title: points_text(score.points) for score in one.scores}
            texts = [*(cells[name] for name in columns), *(scores.get(title, "") for title in titles)]
            rows.append([*texts, *[f"{one.seconds:.1f}"] * times])
        return csv_text(rows)

    def __repr__(self) -> str:
        return as_text(self)


def points_text(value: float | int | None) -> str:
    """Points as people write them: at most two digits after the point.

    >>> points_text(7.0), points_text(2.345), points_text(None)
    ('7', '2.35', '')
    """
    return "" if value is None else f"{round(value + 1e-9, 2):g}"


def csv_text(rows: Sequence[Sequence[str]]) -> str:
    """Rows as CSV; no part of a cell is a formula."""
    text = io.StringIO()
    cells = [[FORMULA.sub(r"\1'\2", cell) for cell in row] for row in rows]
    csv.writer(text, lineterminator="\n").writerows(cells)
    return text.getvalue()


def _cells(one: Grade) -> dict[str, str]:
    return {
        "submission": one.submission, "status": one.status, "problem": one.problem, "checked": one.checked,
        "mistakes": "; ".join(mistake.name for mistake in one.mistakes),
        "lines": "; ".join(str(mistake.line or "") for mistake in one.mistakes),
        "points": points_text(one.points), "of": points_text(one.of), "not checked": points_text(one.open),
        "days late": str(one.days_late), "override": one.override, "notes": "; ".join(one.notes),
        "student": one.student, "id": one.id, "email": one.email,
    }  # fmt: skip


def as_grade(submission: str, verdicts: Sequence[dict[str, Any]], seconds: float | int) -> Grade:
    """One grade from the verdicts on all layers of a submission, as JSON: wrong if one is, right if all are."""
    statuses = {one["status"] for one in verdicts}
    status = "wrong" if "wrong" in statuses else "unchecked" if "unchecked" in statuses else "right"
    findings = [one for verdict in verdicts for one in verdict["findings"]]
    mistakes = {}  # a class that uses another has its mistakes, too
    for one in (one for one in findings if one["kind"] == "mistake"):
        name, says, line, code = clean(one["name"]) or UNKNOWN, clean(one["says"]), one["line"], clean(one["code"])
        mistakes[name, line, "" if line else says] = GradedMistake(name, says, line, code)
    checked = "; ".join(f"{one['name']}: {one['task']}" for one in verdicts if one["task"])
    problems = "; ".join(one["problem"] for one in verdicts if one["problem"])
    warnings = dict.fromkeys(clean(f"{one['name']}: {one['says']}") for one in findings if one["kind"] == "warning")
    return Grade(
        clean(submission), status, clean(checked), tuple(mistakes.values()),
        clean(problems), tuple(warnings), round(seconds, 3),
    )  # fmt: skip


def clean(text: str) -> str:
    """A text in one printable line, so that it can do nothing to a terminal."""
    return " ".join(printable_text(text, LONGEST).split())
