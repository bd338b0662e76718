"""A certificate of progress: what a learner's own files say was done, with the hashes of the answers and of the course.

It is not signed: whoever has the course could sign anything. What proves an answer is running it again: `recheck` does
that, in the sandbox.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.school.course.answers import AnswerChecker
from regard.school.course.courses import Course, Lesson
from regard.school.course.learner import LearnerFolder, short_hash, today
from regard.support.printable import printable_errors, readable
from regard.support.untrusted_json import parse_json

FORMAT = 1
LARGEST = 4 << 20  # bytes
NO_REGARD = "ImportError: regard cannot be imported here"  # what the sandbox answers
ABOUT = (
    "This is what the learner's own files say. It proves nothing by itself, because anybody can change it. To check "
    "the answers, run them again: regard learn status --verify FILE --answers FOLDER"
)
# What is read from a certificate and from each of its exercises, and of which type it is.
FIELDS: dict[str, type] = {"format": int, "course": dict, "date": str, "exercises": list}
EXERCISE_FIELDS: dict[str, type | tuple[type, ...]] = {
    "name": str, "state": str, "hints": int, "solution_seen": bool, "answer": (str, type(None)),
}  # fmt: skip


def make_certificate(folder: LearnerFolder) -> dict[str, Any]:
    """The progress in a learner's folder, in plain values."""
    records = folder.progress.records()
    exercises = []
    for lesson, record in zip(folder.course.lessons, folder.records(), strict=True):
        path = folder.file_of(lesson)
        content = path.read_bytes() if path.is_file() else None
        exercises.append(
            {
                "name": lesson.name,
                "file": path.name,
                "state": record.state if lesson.name in records else "not started",
                "hints": record.hints,
                "attempts": record.attempts,
                "solution_seen": bool(record.solution),
                "date": record.date,
                "answer": None if content is None else hashlib.sha256(content).hexdigest(),
                "changed_since_done": record.is_done and content is not None and short_hash(content) != record.answer,
            }
        )
    return {
        "format": FORMAT,
        "about": ABOUT,
        "course": {"title": folder.course.title, "hash": folder.course.hash},
        "date": today(),
        "done": sum(one["state"] == "done" for one in exercises),
        "of": len(exercises),
        "exercises": exercises,
    }


@printable_errors()
def read_certificate(path: Path) -> dict[str, Any]:
    """A certificate from a file; ValueError if it is none. Nothing in it is to be believed."""
    try:
        with path.open("rb") as file:
            certificate = parse_json(file.read(LARGEST) if path.stat().st_size <= LARGEST else b"")
    except ValueError:  # not UTF-8, not JSON, too large or too deep
        certificate = None
    if isinstance(certificate, dict) and certificate.get("format", FORMAT) != FORMAT:
        found = readable(certificate["format"])
        raise ValueError(f"{path} has format {found}; this version of regard reads {FORMAT}")
    is_whole = _has(certificate, FIELDS) and _has(certificate["course"], {"hash": str}) and certificate["exercises"]
    if not is_whole or not all(_has(one, EXERCISE_FIELDS) for one in certificate["exercises"]):
        raise ValueError(f"{path} is no certificate; make one with: regard learn status --json > FILE")
    return certificate  # type: ignore[no-any-return]


def _has(value: object, fields: Mapping[str, type | tuple[type, ...]]) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), kind) for name, kind in fields.items())


@dataclass(frozen=True)
class RecheckedAnswer:
    """One exercise that a certificate calls done. status: right, wrong, changed, missing or unchecked."""

    name: str
    status: str
    says: str = ""
    needs_regard: bool = False  # it imports regard, which the sandbox hides, so it was not run; the file is the same


def recheck(
    certificate: dict[str, Any], answers: Path, course: Course, checker: AnswerChecker
) -> list[RecheckedAnswer]:
    """Run every answer again that a certificate calls done. Confine the checker, unless the learner is trusted."""
    if certificate["course"]["hash"] != course.hash:
        raise ValueError(
            f"the certificate is of another version of the course: {certificate['course']['hash'][:12]}, "
            f"and this one is {course.hash[:12]}; check it with the version that the learner had"
        )
    folder = LearnerFolder(answers, course)
    done = [(course.lesson(one["name"]), one["answer"]) for one in certificate["exercises"] if one["state"] == "done"]
    return [_recheck_one(lesson, folder.file_of(lesson), answer, checker) for lesson, answer in done]


def _recheck_one(lesson: Lesson, path: Path, answer: str | None, checker: AnswerChecker) -> RecheckedAnswer:
    if not path.is_file():
        return RecheckedAnswer(lesson.name, "missing", f"there is no {path.name}")
    is_same = hashlib.sha256(path.read_bytes()).hexdigest() == answer
    changed = "" if is_same else "; it is another file than the certificate's"
    verdict = checker.check(lesson, path).verdict
    if checker.is_confined and any(NO_REGARD in one.says for one in verdict.mistakes):
        says = f"it imports regard, which the sandbox hides{changed}"
        return RecheckedAnswer(lesson.name, "unchecked", says, needs_regard=is_same)
    if verdict.problem:
        return RecheckedAnswer(lesson.name, "unchecked", verdict.problem + changed)
    if not verdict.is_right:
        first = verdict.mistakes[0]
        return RecheckedAnswer(lesson.name, "wrong", (first.name or first.says.rstrip(".")) + changed)
    return RecheckedAnswer(lesson.name, "right" if is_same else "changed", f"it is right{changed}")
