"""grade: every submission of a folder, several at a time, each with its verdict and its points."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.school.exercises.exercise import load_exercise
from regard.school.exercises.soundness import unsound
from regard.school.grading.checker import Checker
from regard.school.grading.class_report import ClassReport, Grade, as_grade, clean
from regard.school.grading.entries import find_submissions
from regard.school.grading.gradebook import Gradebook, handed_in
from regard.school.grading.key import GradeKey
from regard.school.grading.results import CheckerAnswer, ResultsFolder, file_names
from regard.school.grading.rubric import score_task
from regard.school.grading.similar import find_similar, fingerprints
from regard.school.sandbox.pool import available_processors, share_out
from regard.school.sandbox.protection import ProtectionReport
from regard.school.sandbox.source_text import read_source

Progress = Callable[[int, int, Grade], None]  # how many are done, of how many; the last one
LATER = "not graded yet; run the same command again"
WRITE_EVERY = 1.0  # seconds between two versions of grades.csv while others are checked


def grade(
    folder: Path | str,
    key: GradeKey | None = None,
    *,
    seconds: float | int = 10.0,
    workers: int | None = None,
    unprotected: bool = False,
    progress: Progress | None = None,
    out: Path | str | None = None,
    again: bool = False,
    one: bool = False,
) -> ClassReport:
    """Check every submission in a folder: each file and each folder in it. What is none gets a reason.

    Options:
        key: what was asked for, and hidden sizes and a hidden seed.
        seconds: the time for each task of a submission, all experiments together.
        workers: how many are checked at a time; as many as there are processors, unless given.
        unprotected: go on where this system lacks a layer of protection. Without it, ProtectionMissing is raised.
        progress: called in this thread whenever one is done.
        out: a folder for grades, feedback and what is known already; results are written as they come, and the next
            run checks only what has changed.
        again: check everything again.
        one: the folder, or a file, is one submission.
    """
    folder, key = Path(folder), key or GradeKey()
    if not seconds > 0:
        raise ValueError(f"seconds ({seconds:g}) must be greater than 0")
    if workers is not None and workers < 1:
        raise ValueError(f"workers ({workers}) must be at least 1")
    for task in key.each:
        _check_exercise(task, folder)
    paths, ignored = ([folder.resolve()], []) if one else find_submissions(folder)
    results = None if out is None else ResultsFolder(Path(out), key, folder, one=one)
    graded = _GradedClass(key, paths, ignored, results)
    todo = [path for path in paths if again or not graded.reuse(path, seconds)]
    keys = [task.for_the_check() for task in key.each]
    options: dict[str, Any] = {"keys": keys, "seconds": seconds, "unprotected": unprotected}
    checkers = [Checker(options, folder) for _ in range(min(workers or available_processors(), len(todo)))]

    def checked(done: int, total: int, path: Path, answer: CheckerAnswer) -> None:
        last = graded.add(path, answer)
        if progress is not None:
            progress(len(paths) - total + done, len(paths), last)

    try:
        share_out(todo, checkers, Checker.check, checked)
    finally:  # Ctrl-C loses nothing
        report = next((checker.report for checker in checkers if checker.report), ProtectionReport())
        finished = graded.finish(report)
    return finished


def _check_exercise(task: GradeKey, folder: Path) -> None:
    """Refuse an exercise that cannot be used, before anything runs."""
    if not task.exercise:
        return
    if folder.resolve() in Path(task.exercise).resolve().parents:
        raise ValueError(f"{task.exercise} is in the folder of the submissions, {folder}; put it elsewhere")
    exercise = load_exercise(task.exercise)
    if problems := unsound(exercise):
        raise ValueError(f"{task.exercise} cannot be used: {'; '.join(problems)}")
    parts = [part.name for part in exercise.parts]
    if list(task.rubric) != [name for name in parts if name in task.rubric]:
        given, known = ", ".join(task.rubric), ", ".join(parts)
        raise ValueError(f"rubric ({given}) must name parts of {task.exercise}, in their order: {known}")


class _GradedClass:
    """The grades that are known so far, in memory and in the results folder."""

    def __init__(self, key: GradeKey, paths: list[Path], ignored: list[str], results: ResultsFolder | None) -> None:
        self.key, self.paths, self.ignored, self.results = key, paths, ignored, results
        self.book = Gradebook(key, [path.name for path in paths])
        students = {name: row.student for name, row in self.book.owners.items() if row is not None}
        self.files = file_names((path.name for path in paths), students)
        self.starter = fingerprints(read_source(Path(key.rules.starter))) if key.rules.starter else []
        self.grades: dict[Path, Grade] = {}
        self.prints: dict[str, list[int]] = {}
        self.written = time.monotonic()

    def reuse(self, path: Path, seconds: float | int) -> bool:
        """Take the answer of an earlier run, where nothing has changed."""
        answer = None if self.results is None else self.results.saved(self.files[path.name], path, seconds)
        if answer is not None:
            self._enter(path, answer)
        return answer is not None

    def add(self, path: Path, answer: CheckerAnswer) -> Grade:
        """A new answer: its grade, written at once."""
        if self.results is not None:
            self.results.save(self.files[path.name], path, answer)
        grade = self._enter(path, answer)
        if self.results is not None and time.monotonic() - self.written > WRITE_EVERY:
            self.results.write_class(self._report(ProtectionReport(), similar=False))
            self.written = time.monotonic()
        return grade

    def finish(self, protection: ProtectionReport) -> ClassReport:
        """The report on all that were checked, written."""
        report = self._report(protection)
        if self.results is not None:
            self.results.write_class(report)
        return report

    def _enter(self, path: Path, answer: CheckerAnswer) -> Grade:
        verdicts = [verdict for task in answer.tasks for verdict in task]
        scores = tuple(
            score_task(task.called, found, task.points, task.rubric, bool(task.exercise))
            for task, found in zip(self.key.each, answer.tasks, strict=True)
        )
        grade = replace(as_grade(path.name, verdicts, answer.seconds), scores=scores)
        grade = self.book.enter(grade, path.name, handed_in(path))
        self.grades[path], self.prints[grade.submission] = grade, answer.prints
        if self.results is not None:
            self.results.write_student(self.files[path.name], grade)
        return grade

    def _report(self, protection: ProtectionReport, similar: bool = True) -> ClassReport:
        grades = [self.grades.get(path) or Grade(clean(path.name), "unchecked", problem=LATER) for path in self.paths]
        pairs = find_similar(self.prints, self.key.rules.similar, self.starter) if similar else []
        return ClassReport([*grades, *self.book.missing()], protection, self.key.has_points, self.ignored, pairs)
