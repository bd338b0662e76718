"""grade: every submission of a folder, several at a time, each with its verdict.

A check compares numbers that a submission made. It runs in a process apart from the grader, because numbers that were
chosen on purpose could make it slow or large: the grader ends it then, and goes on with the next.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from regard.school.check.check import check_subject
from regard.school.check.learner_code.submission import (
    Submission,
    SubmissionStopped,
    default_limits,
    does_not_run,
    what_is_missing,
)
from regard.school.check.verdict import Finding, Verdict, with_code
from regard.school.exercises.answer import check_source
from regard.school.exercises.exercise import Exercise, load_exercise
from regard.school.exercises.soundness import unsound
from regard.school.grading.class_report import ClassReport, Grade, as_grade
from regard.school.grading.key import TASKS, GradeKey
from regard.school.sandbox.folders import remove_left_by
from regard.school.sandbox.limits import MiB, used_memory
from regard.school.sandbox.pool import available_processors, share_out
from regard.school.sandbox.protection import Protection, ProtectionMissing, ProtectionReport
from regard.school.sandbox.worker import Worker, find_entry

Progress = Callable[[int, int, Grade], None]  # how many are done, of how many; the last one

# -I and the path of this process: a submission in the current folder that is called torch.py must not be imported.
START = "import sys; sys.path[:] = sys.argv[1:]; from regard.school.grading.grade import run_checker; run_checker()"
LONGEST_START = 200.0  # seconds, for importing torch on a busy machine
FOR_THE_CHECK = 60.0  # seconds for comparing numbers, beyond the time of the submission
NO_SUBMISSIONS = ("__pycache__", "__MACOSX")
GRACE = 5.0  # seconds for a checker to end by itself
LARGEST_SOURCE = MiB  # bytes of a file
MEMORY = 4096 * MiB  # for a check, beyond what torch needs


def grade(
    folder: Path | str,
    key: GradeKey | None = None,
    *,
    seconds: float | int = 10.0,
    workers: int | None = None,
    unprotected: bool = False,
    progress: Progress | None = None,
) -> ClassReport:
    """Check every submission in a folder: each *.py in it, and each folder in it that has one.

    Options:
        key: what was asked for, and hidden sizes and a hidden seed.
        seconds: the time for each submission, all experiments together.
        workers: how many are checked at a time; as many as there are processors, unless given.
        unprotected: go on where this system lacks a layer of protection. Without it, ProtectionMissing is raised.
        progress: called in this thread whenever one is done.
    """
    folder, key = Path(folder), key or GradeKey()
    if not seconds > 0:
        raise ValueError(f"seconds ({seconds:g}) must be greater than 0")
    if workers is not None and workers < 1:
        raise ValueError(f"workers ({workers}) must be at least 1")
    if key.exercise:
        if folder.resolve() in Path(key.exercise).resolve().parents:
            raise ValueError(f"{key.exercise} is in the folder of the submissions, {folder}; put it elsewhere")
        if problems := unsound(load_exercise(key.exercise)):
            raise ValueError(f"{key.exercise} cannot be used: {'; '.join(problems)}")
    paths = find_submissions(folder)
    options: dict[str, Any] = {"key": asdict(key), "seconds": seconds, "unprotected": unprotected}
    checkers = [Checker(options, folder) for _ in range(min(workers or available_processors(), len(paths)))]
    told = progress or (lambda done, total, last: None)
    grades = share_out(paths, checkers, Checker.check, lambda done, total, _, last: told(done, total, last))
    return ClassReport(grades, checkers[0].report or ProtectionReport())


def find_submissions(folder: Path) -> list[Path]:
    """The submissions in a folder, by name; hidden ones and what Python and macOS add are none."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; give the folder that holds the submissions")
    entries = [one for one in folder.iterdir() if not one.name.startswith(".") and one.name not in NO_SUBMISSIONS]
    paths = [one for one in entries if one.suffix == ".py" or _is_folder_with_python(one)]
    if not paths:
        raise ValueError(f"{folder} has no submissions: no .py file, and no folder with one")
    return sorted(paths)


def _is_folder_with_python(path: Path) -> bool:
    try:
        return path.is_dir() and any(name.endswith(".py") for name in os.listdir(path))
    except OSError:  # a folder that cannot be read is told of, not left out
        return True


class CheckerEnded(RuntimeError):
    """The process of a checker ended, or does not answer."""


class Checker:
    """A process that checks submissions, one at a time; if one ends it, the next gets a new process."""

    def __init__(self, options: dict[str, Any], folder: Path) -> None:
        self.options, self.folder = options, folder
        self.report: ProtectionReport | None = None  # after the first start
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the process, and wait for it. Raises ProtectionMissing where a layer is missing."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-c", START, *_import_path(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, text=True,
        )  # fmt: skip
        answer = self._ask(self.options, LONGEST_START)
        self.report = ProtectionReport(tuple(answer["active"]), answer["missing"])
        if answer["refused"]:
            raise ProtectionMissing(self.report)

    def check(self, path: Path) -> Grade:
        """The grade of one submission, whatever it does. Raises CheckerEnded if no process can be started."""
        begin = time.monotonic()
        try:
            if self._process is None:
                self.start()
                begin = time.monotonic()  # importing torch is not the submission's time
            verdicts = self._ask(os.path.abspath(path), self.options["seconds"] + FOR_THE_CHECK)
        except CheckerEnded as error:
            if self._stopped or self.report is None:
                raise
            self.close()
            problem = f"the check itself ended: {error}; check it by hand"
            verdicts = [Verdict(path.name, "", problem=problem).as_json()]
        return as_grade(path.name, verdicts, time.monotonic() - begin)

    def stop(self) -> None:
        self._stopped = True
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process; its worker ends with it."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(timeout=0.0 if self._stopped else GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        remove_left_by(process.pid)

    def _ask(self, question: Any, seconds: float) -> Any:
        """Send a line, and read the line that answers it; whoever does not answer in time is killed."""
        assert self._process is not None
        begin, line, timer = time.monotonic(), "", threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()  # type: ignore[union-attr]
        except OSError:
            pass
        finally:
            timer.cancel()
        is_late = time.monotonic() - begin >= seconds  # then it is killed, even if it has just answered
        if line.endswith("\n") and not is_late:
            return json.loads(line)
        raise CheckerEnded(f"it did not answer within {seconds:g} s" if is_late else "its process ended")


def _import_path(folder: Path) -> list[str]:
    """Where this process imports from, without the current folder and the one that is graded."""
    away = {os.path.realpath(folder), os.path.realpath(os.curdir)}
    own = str(Path(__file__).resolve().parents[3])
    return [own, *(one for one in sys.path if os.path.isabs(one) and os.path.realpath(one) not in away)]


def run_checker() -> None:
    """Check the submissions that lines of JSON on stdin name, and answer each with its verdicts, until there are none.

    The first line has the options; its answer tells which layers of protection there are. Nothing else is written to
    stdout.
    """
    outgoing = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(value: Any) -> None:
        print(json.dumps(value), file=outgoing, flush=True)

    torch.set_num_threads(1)
    options = json.loads(sys.stdin.readline())
    key, seconds = GradeKey(**options["key"]), options["seconds"]
    exercise = load_exercise(key.exercise) if key.exercise else None
    hidden = [Path(key.exercise).parent] if key.exercise else []
    protection = Protection.for_others(hidden, missing_allowed=options["unprotected"])
    with Worker(default_limits(seconds), protection) as worker:
        try:
            report = worker.protection
        except ProtectionMissing as missing:
            answer(asdict(missing.report) | {"refused": True})
            return
        if (used := used_memory()) is not None:
            with suppress(ValueError, OSError):  # where a lower limit is set already
                resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
        answer(asdict(report) | {"refused": False})
        for line in sys.stdin:
            verdicts = check_submission(Path(json.loads(line)), worker, key, seconds, exercise)
            answer([one.as_json() for one in verdicts])


def check_submission(
    path: Path, worker: Worker, key: GradeKey, seconds: float | int, exercise: Exercise | None = None
) -> list[Verdict]:
    """The verdicts on a submission, one for each layer that was checked; one for a teacher's own exercise."""
    nothing = Verdict(key.name or path.name, "", file=path.name)
    submission = Submission(path, worker, seconds, (key.file or None) if path.is_dir() else None)
    verdicts: list[Verdict] = []
    try:
        source = submission_source(path, submission.entry)
        if exercise is not None:
            verdict = check_source(exercise, submission, source, path.name, key.seed)
            if verdict.is_right:  # tells what was checked
                verdict.name = ", ".join(part.name for part in exercise.parts)
            return [verdict]
        for subject in submission.subjects(key.name, source, path.name):
            nothing.name = subject.described["name"]
            verdicts.append(_as_asked(check_subject(subject, key.request()), key))
        if not verdicts:
            nothing.problem = f"it defines no {key.name or 'attention layer'}"
    except SubmissionStopped as stopped:
        if (failure := stopped.outcome.failure_to_load) is None:
            nothing.problem = str(stopped)
        elif not (problem := what_is_missing(failure)):
            nothing.findings = with_code([does_not_run(failure)], source)
        else:
            nothing.problem = problem
    except ValueError as error:
        nothing.problem = str(error)
    except Exception as error:  # numbers that a check cannot deal with, or an error in regard
        nothing.problem = f"the check itself failed ({type(error).__name__}: {str(error)[:200]}); check it by hand"
    return verdicts if nothing.is_right else [*verdicts, nothing]


def submission_source(path: Path, entry: str | None) -> str:
    """The text of the file that is imported; no link is followed out of a submission."""
    name = find_entry(path, entry, links=False)
    file = path if name is None else path / name
    try:
        if (size := file.stat().st_size) > LARGEST_SOURCE:
            raise ValueError(f"{file.name} has {size} bytes; at most {LARGEST_SOURCE}")
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file.name} is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"{file.name} cannot be read: {error.strerror}") from None


def _as_asked(verdict: Verdict, key: GradeKey) -> Verdict:
    """The verdict, wrong if something else was written than was asked for."""
    if verdict.is_right and TASKS[key.task][1] not in verdict.task:
        verdict.findings.append(Finding("another task", f"It is {verdict.task}; the task is {key.task}."))
    return verdict
