"""A submission as a subject: experiments run in the sandbox; the reference and the mistakes stay in this process.

What comes back was written by a process that ran somebody else's code. It is checked before anything is made of it.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.school.check.learner_code import construction, driver, plain_layer, protocol, recording, trials
from regard.school.check.learner_code.loading import LearnerFile
from regard.school.check.learner_code.subject import available, passed_arguments
from regard.school.check.verdict import Finding, known
from regard.school.sandbox import statements
from regard.school.sandbox.limits import MiB, RunLimits
from regard.school.sandbox.outcome import Outcome, SubmissionFailure
from regard.school.sandbox.packets import pack
from regard.school.sandbox.worker import Job, Worker

# Appended to construction.py, driver.py and trials.py, which is what runs beside the submission.
DRIVE = """
def drive(submission, tensors, values):
    torch.set_num_threads(1)
    if "job" not in values:
        return {}, describe(submission)
    target = dict(own_values(submission))[values["name"]]
    seen, returned = (run_trials if "trials" in values["job"] else run)(target, values["job"], tensors)
    return returned, seen
"""
_SENT = (construction, plain_layer, recording, driver, trials)
_PARTS = [Path(inspect.getfile(part)).read_text(encoding="utf-8") for part in _SENT]
# One file of all, without the imports of each other and what can only stand at the top.
DRIVER = _PARTS[0] + re.sub(r"(?m)^from (__future__|regard)\b[^(\n]*(\([^)]*\))?$", "", "".join(_PARTS[1:])) + DRIVE
DOES_NOT_RUN = known("does not run", "A file that raises an error while it is imported defines nothing to check.")
SPARE_SECONDS = 0.05  # of every experiment, for statements that no definition needs
MOST_REMEMBERED = 1 << 20  # numbers of one experiment; of ours, none has that many


class SubmissionStopped(Exception):
    """A run of a submission that gave nothing to compare."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"{outcome.word}: {outcome.sentence}")
        self.outcome = outcome


class Submission:
    """A student's file or folder, and the time that is left for running it."""

    def __init__(self, path: Path, worker: Worker, seconds: float | int, entry: str | None = None) -> None:
        self.path, self.worker, self.entry = path, worker, entry
        self.source: str | None = None  # imported as Python does it, unless it is known
        self.seconds = self.left = seconds

    def contents(self, source: str, file: str, skips: bool = True) -> LearnerFile[SandboxedSubject]:
        """What it defines. Its text runs as a person's own file does: a statement that fails is skipped, if `skips`."""
        self.source = source if skips else None
        described = self.run({}, {}).values
        is_known = protocol.fits(described, protocol.FileDescription)
        if not is_known or not all("build" in one for one in described["classes"]):
            raise SubmissionStopped(malformed("its description is not what a driver writes"))
        own = [SandboxedSubject(self, one, source, file) for one in (*described["classes"], *described["functions"])]
        return LearnerFile(file, source, own, described["skipped"])

    def run(self, values: dict[str, Any], tensors: dict[str, Tensor], driver_source: str = DRIVER) -> Outcome:
        """One run in the sandbox, in the time that is left. Raises SubmissionStopped unless it finished."""
        begin = time.monotonic()
        left = max(self.left, 0.01)
        limits = replace(self.worker.limits, wall_seconds=left, cpu_seconds=math.ceil(left) + 1)
        spare = SPARE_SECONDS if "job" in values else statements.SPARE_SECONDS
        job = Job(
            self.path, driver_source, tensors, values, self.entry, limits, source=self.source, spare_seconds=spare
        )
        outcome = self.worker.run(job)
        self.left -= time.monotonic() - begin
        if outcome.word == "out of time":
            _, comma, where = outcome.sentence.rstrip(".").partition(", in line ")  # told of a person's own file
            outcome = replace(outcome, sentence=f"It did not end within {self.seconds:g} s{comma}{where}.")
        if not outcome.finished:
            raise SubmissionStopped(outcome)
        return outcome


class SandboxedSubject:
    """A class or function of a submission; every experiment is a process of its own.

    What was asked before is remembered: several parts of a check ask the same.
    """

    is_built = False

    def __init__(self, submission: Submission, described: protocol.Description, source: str, file: str) -> None:
        self.submission, self.described, self.source, self.file = submission, described, source, file
        self.ran: set[int] = set()
        self.passed: set[str] = set()
        self._known: dict[bytes, protocol.Observation] = {}

    def run(self, job: protocol.DriverJob, tensors: dict[str, Tensor]) -> protocol.Observation:
        """Run one experiment in the sandbox, or tell what it has shown."""
        asked = hashlib.sha256(pack(tensors, job)).digest()
        if asked in self._known:
            return self._known[asked]
        outcome = self.submission.run({"name": self.described["name"], "job": job}, tensors)
        try:
            protocol.check_report(outcome.values, outcome.tensors, job)
            shown = available(protocol.read_report(outcome.values, dict(outcome.tensors), tensors))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SubmissionStopped(malformed(str(error))) from error
        self.ran |= {*shown.ran}
        self.passed |= {*passed_arguments(self.described, job)}
        if sum(t.numel() for t in outcome.tensors.values()) <= MOST_REMEMBERED:
            self._known[asked] = shown
        return shown


def does_not_run(failure: SubmissionFailure) -> Finding:
    """The finding on a file that cannot be imported."""
    message = f"{failure.type}: {failure.message}".splitlines()[0].rstrip(":. ")
    line = failure.lines[-1].line if failure.lines else 0
    return DOES_NOT_RUN.found(f"The file does not run: {message}.", line)


def what_is_missing(failure: SubmissionFailure) -> str:
    """Why a file that cannot be imported may be right elsewhere: a package or a file that is not here; else ""."""
    message = failure.message.splitlines()[0] if failure.message else ""
    if failure.type == "ModuleNotFoundError":
        return f"it imports what is not installed here: {message}"
    if failure.type == "FileNotFoundError":
        return f"it reads a file that is not here: {message}"
    if failure.type == "PermissionError" and not failure.lines:  # no privileges there, not even for root
        return f"the sandbox cannot read it: {message}; let everybody read it (chmod a+rX)"
    return ""


def default_limits(seconds: float | int) -> RunLimits:
    """The limits of one run, for submissions that have so many seconds in all."""
    return RunLimits(wall_seconds=seconds, cpu_seconds=math.ceil(seconds) + 1)


def own_limits(seconds: float | int) -> RunLimits:
    """The limits for a person's own file: of time, of memory, and of what it prints."""
    most = {"file_bytes": 1 << 40, "folder_bytes": 1 << 40, "folder_entries": 1 << 20, "open_files": 1024}
    return replace(default_limits(seconds), memory_bytes=4096 * MiB, **most)


def malformed(reason: str) -> Outcome:
    """The outcome of a run that returned what the driver does not write."""
    return Outcome("malformed", f"What it returned is no result: {reason[:200]}.")
