"""The grades of a class: one verdict for each submission, and which mistakes were made how often."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.school.sandbox.outcome import printable_text
from regard.school.sandbox.protection import ProtectionReport
from regard.support.drawing import as_text

UNKNOWN = "unknown mistake"
# What a spreadsheet takes for a formula; also inside a text, where it separates columns in another way.
FORMULA = re.compile(r'((?:^|[;,|"])\s*)([=+@\-＝＋－＠])')
LONGEST = 2000  # characters of a text that a submission can influence


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
    status: str  # right, wrong or unchecked
    checked: str = ""  # the class or function, and what it is
    mistakes: tuple[GradedMistake, ...] = ()
    problem: str = ""  # why it could not be checked
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def says(self) -> str:
        """The verdict in a line: the mistakes, or why it could not be checked, or what it is."""
        named = [f"{one.name}{f' (line {one.line})' if one.line else ''}" for one in self.mistakes]
        warned = [f"but {one.partition(':')[0]}" for one in self.warnings]
        return self.problem or "; ".join(named) or "; ".join([self.checked, *warned])


@dataclass(frozen=True)
class ClassReport:
    """The grades of all submissions, in the order of their names."""

    grades: list[Grade]
    protection: ProtectionReport = field(default_factory=ProtectionReport)

    def count(self, status: str) -> int:
        return sum(one.status == status for one in self.grades)

    @property
    def mistakes(self) -> list[tuple[str, list[str]]]:
        """Each mistake that was made and who made it, the most frequent first."""
        who: dict[str, list[str]] = {}
        for grade in self.grades:
            for name in dict.fromkeys(one.name for one in grade.mistakes):
                who.setdefault(name, []).append(grade.submission)
        return sorted(who.items(), key=lambda one: (-len(one[1]), one[0]))

    def as_json(self) -> dict[str, Any]:
        return {
            "counts": dict(Counter(one.status for one in self.grades)),
            "mistakes": dict(self.mistakes),
            "protection": {"active": list(self.protection.active), "missing": dict(self.protection.missing)},
            "grades": [asdict(one) for one in self.grades],
        }

    def as_csv(self) -> str:
        """One row for each submission; several mistakes are separated by semicolons."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["submission", "status", "mistakes", "lines", "problem", "checked", "seconds"])
        for one in self.grades:
            names = "; ".join(mistake.name for mistake in one.mistakes)
            lines = "; ".join(str(mistake.line or "") for mistake in one.mistakes)
            texts = [one.submission, one.status, names, lines, one.problem, one.checked]
            rows.writerow([*(FORMULA.sub(r"\1'\2", text) for text in texts), f"{one.seconds:.1f}"])
        return text.getvalue()

    def __repr__(self) -> str:
        return as_text(self)


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
        clean(problems) if status == "unchecked" else "", tuple(warnings), round(seconds, 3),
    )  # fmt: skip


def clean(text: str) -> str:
    """A text in one printable line, so that it can do nothing to a terminal."""
    return " ".join(printable_text(text, LONGEST).split())
