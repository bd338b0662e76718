"""One submission: its verdict. And a process that checks one after the other, so that the grader outlives each of them.

A check compares numbers that a submission made. It runs in a process apart from the grader, because numbers that were
chosen on purpose could make it slow or large: the grader ends it then, and goes on with the next.
"""

from __future__ import annotations

import json
import os
import resource
import sys
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
from regard.school.grading.key import TASKS, GradeKey
from regard.school.sandbox.limits import MiB, used_memory
from regard.school.sandbox.protection import Protection, ProtectionMissing
from regard.school.sandbox.worker import Worker, find_entry

LARGEST_SOURCE = MiB  # bytes of a file
MEMORY = 4096 * MiB  # for a check, beyond what torch needs


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
                verdict.name = ", ".join(exercise.part_names)
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
    return [*verdicts, nothing] if nothing.problem or nothing.findings else verdicts


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
