"""The results folder: grades, feedback and Gradescope's files, each written when it is known.

state/ has the answer of the checker for each submission, under a hash of the submission, of what the key asks for and
of regard's version. A second run checks what is new, and an interrupted one goes on. Nothing but state/ has times in
it: everything else is the same on every run.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from regard.school.grading.class_report import ClassReport, Grade, csv_text, points_text
from regard.school.grading.gradebook import stem_of
from regard.school.grading.key import GradeKey
from regard.school.grading.rubric import OPEN, RIGHT
from regard.support.files import atomically, check_writable
from regard.support.untrusted_json import parse_json

MOST_BYTES, MOST_FILES = 64 << 20, 2000  # of a submission that is hashed; a larger one is checked on every run
MOST_STATE = 5_000_000  # what the JSON of an answer may cost
MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~-])")
NO_FILE_NAME = re.compile(r"[^\w.@+=-]+")
WORDS = {"right": "Right.", "wrong": "Not right yet.", "unchecked": "It could not be checked."}


@dataclass
class CheckerAnswer:
    """What the checker says of one submission: the verdicts on each task, as JSON, and the structure of its code."""

    tasks: list[list[dict[str, Any]]]
    prints: list[int]
    seconds: float | int
    limit: float | int = 0.0  # seconds that it had
    is_final: bool = True  # not where the checker itself failed


class ResultsFolder:
    """A folder for the results of a class. Raises ValueError at once where it cannot be written."""

    def __init__(self, path: Path, key: GradeKey, folder: Path, *, one: bool = False) -> None:
        if path.resolve() == folder.resolve() or folder.resolve() in path.resolve().parents:
            raise ValueError(f"{path} is in the folder of the submissions, {folder}; put it elsewhere")
        self.path, self.one, self.has_points = path, one, key.has_points
        try:
            for name in ("state", "feedback", "gradescope"):
                (path / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"{path} cannot be made: {error.strerror}; choose another folder") from None
        for name in ("grades.csv", "results.json", "similar.csv", "state/x", "feedback/x", "gradescope/x"):
            check_writable(path / name)
        tasks = [_with_exercise(one.for_the_check()) for one in key.each]
        self._asked = json.dumps([version("regard"), tasks], sort_keys=True, default=str).encode()

    def saved(self, name: str, submission: Path, limit: float | int) -> CheckerAnswer | None:
        """The answer of an earlier run, where nothing has changed; one that was out of time needs no shorter one."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            values = parse_json((self.path / "state" / f"{name}.json").read_bytes(), MOST_STATE)
            answer = CheckerAnswer(**values["answer"])
            late = any("out of time" in one["problem"] for task in answer.tasks for one in task)
            if values["hash"] and values["hash"] == self.digest(submission) and (answer.limit >= limit or not late):
                return answer
        return None

    def save(self, name: str, submission: Path, answer: CheckerAnswer) -> None:
        """Keep the answer for the next run."""
        if answer.is_final:
            text = json.dumps({"hash": self.digest(submission), "answer": asdict(answer)})
            write_text(self.path / "state" / f"{name}.json", text)

    def digest(self, submission: Path) -> str:
        """A hash of a submission and of what is asked for; "" where it cannot be read, or is too large."""
        total = hashlib.blake2b(self._asked, digest_size=16)
        left = MOST_BYTES
        try:
            for count, file in enumerate(_files(submission)):
                state = file.lstat()
                total.update(f"\0{os.fsencode(file.relative_to(submission.parent))!r} {state.st_mode}\0".encode())
                left -= state.st_size
                if left < 0 or count >= MOST_FILES:
                    return ""
                if stat.S_ISREG(state.st_mode):
                    total.update(hashlib.blake2b(file.read_bytes()).digest())
        except OSError:
            return ""
        return total.hexdigest()

    def write_student(self, name: str, grade: Grade) -> None:
        """The feedback on a submission, and its results for Gradescope."""
        write_text(self.path / "feedback" / f"{name}.md", feedback(grade, self.has_points))
        folder = self.path / "gradescope" if self.one else self.path / "gradescope" / name
        folder.mkdir(exist_ok=True)
        write_text(folder / "results.json", _json(gradescope(grade)))

    def write_class(self, report: ClassReport) -> None:
        """The grades of all, and pairs that look alike."""
        write_text(self.path / "grades.csv", report.as_csv(times=False))
        write_text(self.path / "results.json", _json(report.as_json(times=False)))
        pairs = [[one.one, one.other, f"{one.percent} %"] for one in report.similar]
        write_text(self.path / "similar.csv", csv_text([["submission", "similar to", "look yourself"], *pairs]))


def feedback(grade: Grade, has_points: bool = True) -> str:
    """What a student is told, as Markdown; what a submission wrote is in it as plain text only."""
    lines = [f"# {_plain(grade.student or stem_of(grade.submission))}", ""]
    total = f"{points_text(grade.points)} of {points_text(grade.of)} points. " if has_points else ""
    lines += [f"{total}{WORDS[grade.status]}", ""]
    for note in (*grade.notes, *([f"Changed by hand: {grade.override}"] if grade.override else [])):
        lines += [f"{_plain(note[0].upper() + note[1:]).removesuffix('.')}.", ""]
    for score in grade.scores:
        points = f": {points_text(score.points)} of {points_text(score.of)}" if has_points else ""
        lines += [f"## {_plain(score.title)}{points}", ""]
        if has_points and (len(score.parts) > 1 or score.parts[0].name != "all"):
            lines += ["| part | points | of | |", "| --- | --- | --- | --- |"]
            for part in score.parts:
                why = part.why or (part.state if part.state != RIGHT else "")
                lines.append(f"| {part.name} | {points_text(part.points)} | {points_text(part.of)} | {_plain(why)} |")
            lines.append("")
        lines += [f"    {line}".rstrip() for line in (score.text or grade.problem).splitlines()]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def gradescope(grade: Grade) -> dict[str, Any]:
    """The results.json of Gradescope's autograder: a test for each part of each task."""
    tests = []
    for score in grade.scores:
        for i, part in enumerate(score.parts):
            name = score.title if part.name == "all" else f"{score.title}: {part.name}"
            why = part.why if part.state == RIGHT else f"{part.state}: {part.why}" if part.why else part.state
            text = f"\n\n{score.text or grade.problem}" if not i else ""
            status = "passed" if part.state == RIGHT else "failed"
            points = {"score": round(part.points, 2), "max_score": round(part.of, 2)}
            tests.append({"name": name, **points, "status": status, "output": f"{why}{text}".strip("\n")})
    notes = [*grade.notes, *([f"changed by hand: {grade.override}"] if grade.override else [])]
    undecided = [f"{points_text(grade.open)} points were not checked: {OPEN}"] if grade.open else []
    said = "\n".join([WORDS[grade.status], *notes, *undecided])
    return {"score": grade.points or 0.0, "output": said, "output_format": "text", "tests": tests}


def file_names(submissions: Iterable[str], students: Mapping[str, str]) -> dict[str, str]:
    """A name for the files on each submission: its student's, or its own; with a number where two would be the same.

    >>> file_names(["ana.py", "ana.ipynb", "b/../c.py"], {"b/../c.py": "Cleo"})["b/../c.py"]
    'Cleo'
    """
    wanted = {one: NO_FILE_NAME.sub("_", students.get(one) or stem_of(one))[:40].strip(".") for one in submissions}
    taken = [one.casefold() for one in wanted.values()]
    names = {}
    for one, name in wanted.items():
        is_own = name and taken.count(name.casefold()) == 1 and name == (students.get(one) or stem_of(one))
        mark = hashlib.blake2b(one.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        names[one] = name if is_own else f"{name or 'submission'}-{mark}"
    return names


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text, all of it or not at all."""
    with atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _files(path: Path) -> list[Path]:
    """What a submission consists of; no link is followed."""
    if path.is_symlink() or not path.is_dir():
        return [path]
    found: list[Path] = []
    for folder, _, names in os.walk(path, onerror=_raise):
        found += [Path(folder), *(Path(folder, name) for name in names)]
        if len(found) > MOST_FILES:
            break
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error


def _with_exercise(asked: dict[str, Any]) -> dict[str, Any]:
    """What is asked for, with the text of an exercise in place of its path."""
    path = Path(asked["exercise"])
    text = (path / "exercise.py" if path.is_dir() else path).read_text("utf-8") if asked["exercise"] else ""
    return asked | {"exercise": text}


def _plain(text: str) -> str:
    return MARKDOWN.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
