"""Checking answers, one after the other, in a warm process: a check takes milliseconds, not the import of torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from regard.school.course.courses import Lesson
from regard.school.course.learner import LearnerFolder
from regard.school.course.own_files import files_beside, used_files

if TYPE_CHECKING:  # until something is checked, nobody waits for torch
    from regard.school.exercises.answer import AnswerVerdict
    from regard.school.exercises.exercise import Exercise
    from regard.school.sandbox.worker import Worker


# What answers that use regard import, and torch when they load a model: half of the time that such an answer takes.
IMPORTED = ("regard.public", "regard.gpt.checkpoint.pretrained", "torch.fx.experimental.symbolic_shapes")
OLDER = "This file was written by another edition of the course, which has changed since."
REMEDY = "regard learn reset {} writes it anew, and keeps yours."
NOT_WRITTEN = "not written yet"  # the name of that finding


@dataclass(frozen=True)
class CheckedAnswer:
    """A verdict, and what else is shown with it."""

    verdict: AnswerVerdict
    seconds: float
    is_start: bool = False  # the file is as it was at the beginning
    answer: bytes = b""  # the file as it was checked
    note: str = ""  # about the learner's folder: what is shown below the verdict

    @property
    def is_untouched(self) -> bool:
        """Is it the file as it was at the beginning, or something still to be written, and so no attempt yet?"""
        return self.is_start or any(one.name == NOT_WRITTEN for one in self.verdict.findings)


class AnswerChecker:
    """Checks files against exercises. Use it in a `with` block: a process waits for the next answer.

    confined: the answers are other people's; they run with every layer of protection, and cannot import regard.
    """

    def __init__(self, *, confined: bool = False) -> None:
        self.is_confined = confined
        # Asked a few times a second while an answer runs; if it says yes, the check raises RunCancelled.
        self.is_cancelled: Callable[[], bool] = bool  # no
        self._worker: Worker | None = None
        self._exercises: dict[Lesson, Exercise] = {}
        self._right = set[tuple[str, bytes]]()  # files that others import

    def __enter__(self) -> AnswerChecker:
        return self

    def __exit__(self, *error: object) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def exercise(self, lesson: Lesson) -> Exercise:
        """The exercise of a lesson, which is loaded once."""
        from regard.school.exercises.exercise import load_exercise

        if lesson not in self._exercises:
            self._exercises[lesson] = load_exercise(lesson.folder)
        return self._exercises[lesson]

    def check(self, lesson: Lesson, path: Path) -> CheckedAnswer:
        """Check a file. The first check waits for the import of torch."""
        worker = self._worker = self._worker or self._start()  # before torch is imported here: both take seconds
        import torch

        from regard.school.exercises.answer import check_answer

        torch.set_num_threads(1)  # the tensors are small, and threads would wait for one another
        exercise = self.exercise(lesson)
        _ = worker.protection  # waits until it is warm, which is not part of the check
        begin = time.perf_counter()
        worker.is_cancelled = self.is_cancelled
        answer = path.read_bytes() if path.is_file() else b""  # now: the import has taken seconds
        is_start = answer == lesson.text("start.py").encode()
        verdict = None if is_start else self._used(exercise, worker, path)
        if verdict is None:
            with files_beside(exercise, path) as folder:
                verdict = check_answer(exercise, worker, path, folder=folder)
        return CheckedAnswer(verdict, time.perf_counter() - begin, is_start, answer)

    def _used(self, exercise: Exercise, worker: Worker, path: Path) -> AnswerVerdict | None:
        """What is wrong with the first file that this one imports and that is not right; None if all are."""
        from regard.school.exercises.answer import AnswerVerdict, check_answer
        from regard.school.exercises.exercise import load_exercise

        for name, file in used_files(exercise, path).items():
            if file is None:
                problem = (
                    f"it imports your file for {name}, which is not there; write it again: regard learn reset {name}"
                )
                return AnswerVerdict(path.name, exercise.title, file=str(path), problem=problem)
            known = name, file.read_bytes()
            if known in self._right:
                continue
            assert exercise.path is not None
            verdict = check_answer(load_exercise(exercise.path.parents[1] / name), worker, file)
            if not verdict.is_right:
                verdict.name = file.name
                verdict.notes.append(f"{path.name} imports it. Mend it first: regard learn watch {name}")
                return verdict
            self._right.add(known)
        return None

    def _start(self) -> Worker:
        from regard.school.sandbox.process import WorkerProcess
        from regard.school.sandbox.protection import Protection

        protection = Protection.for_others() if self.is_confined else Protection.for_own_file(imported=IMPORTED)
        process = WorkerProcess(protection)
        from regard.school.check.learner_code.submission import default_limits, own_limits
        from regard.school.exercises.answer import SECONDS
        from regard.school.sandbox.worker import Worker

        limits = default_limits(SECONDS) if self.is_confined else own_limits(SECONDS)
        return Worker(limits, protection, process=process)


def check_learner(folder: LearnerFolder, lesson: Lesson, checker: AnswerChecker) -> CheckedAnswer:
    """Check the learner's file for an exercise, and note the result in the progress before anything else happens."""
    path = folder.file_of(lesson)
    if not path.is_file():
        raise ValueError(f"{path.name} is not there; write it again: regard learn reset {lesson.name}")
    checked = checker.check(lesson, path)
    is_right, edition = checked.verdict.is_right, folder.edition_of(lesson, checked.answer)
    checked = replace(checked, is_start=checked.is_start or edition == "untouched")
    note = "" if is_right or not edition else f"{OLDER} {REMEDY.format(lesson.name)}"
    if is_right or not checked.is_untouched:
        try:
            folder.note_checked(lesson, checked.answer, is_right)
        except (OSError, ValueError) as error:
            note = f"This was not noted: {error}."
    return replace(checked, note=note)
