"""The checker: a process that checks one submission after the other, and answers with verdicts.

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
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from regard.school.check.learner_code.submission import (
    Submission,
    SubmissionStopped,
    default_limits,
    does_not_run,
    what_is_missing,
)
from regard.school.check.verdict import Finding, Verdict, with_code
from regard.school.check.whole_file import check_all
from regard.school.exercises.answer import check_source
from regard.school.exercises.exercise import Exercise, load_exercise
from regard.school.grading.entries import opened_entry
from regard.school.grading.key import TASKS, GradeKey
from regard.school.grading.results import CheckerAnswer
from regard.school.grading.similar import fingerprints
from regard.school.sandbox.folders import remove_left_by
from regard.school.sandbox.limits import MiB, used_memory
from regard.school.sandbox.protection import Protection, ProtectionMissing, ProtectionReport
from regard.school.sandbox.worker import Worker
from regard.support.drawing import as_text

# -I and the path of this process: a submission in the current folder that is called torch.py must not be imported.
START = "import sys; sys.path[:] = sys.argv[1:]; from regard.school.grading.checker import run_checker; run_checker()"
LONGEST_START = 200.0  # seconds, for importing torch on a busy machine
FOR_THE_CHECK = 60.0  # seconds for comparing numbers, beyond the time of the submission
GRACE = 5.0  # seconds for a checker to end by itself
WIDTH = 100  # columns of a verdict as text
MEMORY = 4096 * MiB  # for a check, beyond what torch needs


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

    def check(self, path: Path) -> CheckerAnswer:
        """The verdicts on one submission, whatever it does. Raises CheckerEnded if no process can be started."""
        begin, seconds, tasks = time.monotonic(), self.options["seconds"], len(self.options["keys"])
        try:
            if self._process is None:
                self.start()
                begin = time.monotonic()  # importing torch is not the submission's time
            answer = self._ask(os.path.abspath(path), tasks * (seconds + FOR_THE_CHECK))
        except CheckerEnded as error:
            if self._stopped or self.report is None:
                raise
            self.close()
            problem = f"the check itself ended: {error}; check it by hand"
            answer = {"tasks": [[Verdict(path.name, "", problem=problem).as_json()]] * tasks, "prints": []}
            return CheckerAnswer(**answer, seconds=time.monotonic() - begin, is_final=False)
        return CheckerAnswer(**answer, seconds=time.monotonic() - begin, limit=seconds)

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
    keys, seconds = [GradeKey(**one) for one in options["keys"]], options["seconds"]
    exercises = [load_exercise(one.exercise) if one.exercise else None for one in keys]
    hidden = [Path(one.exercise).parent for one in keys if one.exercise]
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
            path = Path(json.loads(line))
            tasks = [
                check_submission(path, worker, key, seconds, exercise)
                for key, exercise in zip(keys, exercises, strict=True)
            ]
            answer({"tasks": [[_with_text(one) for one in task] for task in tasks], "prints": _prints(path, keys)})


def _with_text(verdict: Verdict) -> dict[str, Any]:
    return verdict.as_json() | {"text": as_text(verdict, WIDTH)}


def _prints(path: Path, keys: list[GradeKey]) -> list[int]:
    """The structure of the code of a submission, all its files together."""
    found: set[int] = set()
    for file in dict.fromkeys(key.file for key in keys):
        with suppress(ValueError), opened_entry(path, file) as entry:
            found.update(fingerprints(entry.source))
    return sorted(found)


def check_submission(
    path: Path, worker: Worker, key: GradeKey, seconds: float | int, exercise: Exercise | None = None
) -> list[Verdict]:
    """The verdicts on a submission, one for each layer that was checked; one for a teacher's own exercise."""
    nothing = Verdict(key.name or path.name, "", file=path.name)
    verdicts: list[Verdict] = []
    try:
        with opened_entry(path, key.file) as (place, file, source):
            submission = Submission(place, worker, seconds, file)
            if exercise is not None:
                verdict = check_source(exercise, submission, source, path.name, key.seed)
                if verdict.is_right:  # tells what was checked
                    verdict.name = ", ".join(part.name for part in exercise.parts)
                return [verdict]
            for one in check_all(submission.contents(source, path.name), key.request(), key.name):
                verdicts.append(_as_asked(one, key))
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


def _as_asked(verdict: Verdict, key: GradeKey) -> Verdict:
    """The verdict, wrong if something else was written than was asked for."""
    if verdict.is_right and TASKS[key.task][1] not in verdict.task:
        verdict.findings.append(Finding("another task", f"It is {verdict.task}; the task is {key.task}."))
    return verdict
