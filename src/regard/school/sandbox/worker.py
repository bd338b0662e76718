"""Run submissions, one after the other, each in a process of its own that has imported torch already.

This is the supervisor's side. It decides when a run is over, reads a bounded number of bytes, and believes none.
"""

from __future__ import annotations

import base64
import marshal
import os
import selectors
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.school.sandbox.child import STARTED
from regard.school.sandbox.folders import measure_folder, temporary_folder
from regard.school.sandbox.limits import MiB, RunLimits
from regard.school.sandbox.outcome import SENTENCES, Outcome, printable_text, read_failure, with_last_line
from regard.school.sandbox.packets import MalformedPacket, pack, unpack
from regard.school.sandbox.process import FORKS, Ended, RunCancelled, WorkerDied, WorkerProcess
from regard.school.sandbox.protection import Protection, ProtectionReport
from regard.school.sandbox.source_text import is_python
from regard.school.sandbox.statements import SPARE_SECONDS

LOOK_EVERY = 0.2  # seconds between two looks at the folder
CANCELLED = "cancelled"
GRACE = 5.0  # seconds for a worker to end a job's process before it counts as dead


@dataclass(frozen=True)
class Job:
    """A submission, the driver that uses it, and what the driver is given.

    The driver is Python that we trust. It defines `drive(submission, tensors, values)`, which gets the imported
    submission (its path, unless `loads`) and returns a dict of tensors, or that and JSON values.
    """

    submission: Path | str
    driver: str
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    values: Any = None
    entry: str | None = None  # of a folder: the file to import; not needed if it has only one
    limits: RunLimits | None = None  # in place of those of the worker
    loads: bool = True  # import the submission before the driver runs
    source: str | None = (
        None  # its text, to be run statement by statement; without it, it is imported as Python does it
    )
    spare_seconds: float = SPARE_SECONDS  # for statements of the text that no definition needs


@dataclass
class Received:
    """What has come from a submission's process so far."""

    result: bytearray = field(default_factory=bytearray)
    output: bytearray = field(default_factory=bytearray)
    stopped: tuple[str, str] | None = None  # word and sentence, if the supervisor ended it


class Worker:
    """A warm process, which forks one for each job. Starts at once; the first run waits for its import of torch.

    >>> import torch
    >>> driver = "def drive(submission, tensors, values): return {'out': submission.double(tensors['x'])}"
    >>> with temporary_folder() as folder, Worker() as worker:
    ...     path = folder / "homework.py"
    ...     _ = path.write_text("def double(x): return x + x")
    ...     worker.run(Job(path, driver, {"x": torch.arange(3)})).tensors
    {'out': tensor([0, 2, 4])}

    The worker may be used by one thread at a time. If its process dies, the next run starts another. `process` is one
    that was started already, for this protection.
    """

    def __init__(
        self,
        limits: RunLimits | None = None,
        protection: Protection | None = None,
        process: WorkerProcess | None = None,
    ) -> None:
        self.limits = limits or RunLimits()
        self._wanted = protection or Protection.for_others()
        self._forks, self._number, self._stopped = FORKS if process is None else process.forks, 0, False
        self._process: WorkerProcess | None = process or self._started()
        # Asked a few times a second while a job runs; if it says yes, the job ends, and its run raises RunCancelled.
        self.is_cancelled: Callable[[], bool] = bool  # no

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _started(self) -> WorkerProcess:
        return WorkerProcess(self._wanted, self._forks)

    def stop(self) -> None:
        """End a run that another thread waits for; there, it raises WorkerDied. The worker is not to be used again."""
        self._stopped = True
        if (process := self._process) is not None:
            process.hang_up()

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    @property
    def protection(self) -> ProtectionReport:
        """The layers of protection that work here, and those that are missing; waits for the worker to start."""
        self._process = self._process or self._started()
        return self._process.wait_until_ready()

    @property
    def is_confined(self) -> bool:
        return self._wanted.confined

    def run(self, job: Job) -> Outcome:
        """Run a submission, and wait for its end, which comes within the limits whatever it does.

        Raises ProtectionMissing if this system lacks a layer, and RunCancelled if `is_cancelled` said so.
        """
        try:
            entry = find_entry(Path(job.submission), job.entry, links=not self.is_confined)
        except ValueError as error:
            return Outcome("not run", f"It was not run: {error}.")
        reason = ""
        try:
            for _ in range(2):  # the worker's process may have died for another reason than the submission
                try:
                    return self._run(job, entry)
                except WorkerDied as error:
                    if self._stopped:
                        raise
                    reason = printable_text(str(error), 2000)
        finally:
            if not self._forks and not self._stopped:
                self.close()
                self._process = self._started()  # warm for the next
        return Outcome("not run", f"It was not run: {reason}, and again in a new one.")

    def _run(self, job: Job, entry: str | None) -> Outcome:
        process = self._process = self._process or self._started()
        self._number += 1
        limits, received = job.limits or self.limits, Received()
        places = {"submission": os.path.abspath(job.submission), "entry": entry, "working_folder": os.getcwd()}
        rules = {"confined": self.is_confined, "imported": bool(self._wanted.imported), "limits": asdict(limits)}
        loading = {"loads": job.loads, "source": job.source, "spare_seconds": job.spare_seconds}
        values = {**places, **rules, **loading, "driver": _compiled(job.driver), "values": job.values}
        try:
            report = process.wait_until_ready()
            begin = time.monotonic()
            with temporary_folder() as folder, _channels(job, {**values, "folder": str(folder)}) as (theirs, sources):
                process.send_job(self._number, theirs, limits.threads)
                _close(theirs)  # so that the end of the process is the end of what it writes
                ended = self._supervise(process, folder, limits, received, sources)
        except BaseException:
            self.close()  # whatever it was, no process of a submission outlives this
            raise
        outcome = judge(received, ended, limits, time.monotonic() - begin, report)
        if outcome.word == CANCELLED:
            raise RunCancelled
        return outcome if self.is_confined else with_last_line(outcome, values["submission"])

    def _supervise(
        self, process: WorkerProcess, folder: Path, limits: RunLimits, received: Received, sources: dict[int, str]
    ) -> Ended:
        """Read what comes, end the process when it exceeds a limit, and return how it ended."""
        begin = time.monotonic()
        deadline, look, killed = begin + limits.wall_seconds, begin + LOOK_EVERY, False
        with selectors.DefaultSelector() as selector:
            if process.forks:
                selector.register(process.messages.connection, selectors.EVENT_READ)
            for descriptor in sources:
                selector.register(descriptor, selectors.EVENT_READ)
            while True:
                ended = process.wait(selector, self._number, max(0.0, min(deadline, look) - time.monotonic()))
                _read_sources(selector, sources, received, limits)
                if ended:
                    if ended.crowded and received.stopped is None:
                        received.stopped = "too many threads", f"It had more than {limits.threads} threads at once."
                    return ended
                now = time.monotonic()
                if killed and now >= deadline:
                    raise WorkerDied("the worker's process does not answer")
                if now >= look:
                    look = now + LOOK_EVERY
                    received.stopped = received.stopped or self._look(process, folder, limits)
                if now >= deadline:
                    seconds = f"{limits.wall_seconds:g} s"
                    received.stopped = received.stopped or ("out of time", f"It was stopped after {seconds}.")
                if received.stopped and not killed:
                    process.kill_job(self._number)
                    deadline, look, killed = now + GRACE, now + GRACE, True

    def _look(self, process: WorkerProcess, folder: Path, limits: RunLimits) -> tuple[str, str] | None:
        """Limits that the kernel does not enforce, and whether the run was cancelled: word and sentence."""
        size, entries = measure_folder(folder, limits.folder_entries)
        if size > limits.folder_bytes or entries > limits.folder_entries:
            return _too_much("folder", limits)
        if not FORKS and process.resident_bytes() - process.memory_at_start > limits.memory_bytes:
            return "out of memory", f"It needed more than {limits.memory_bytes >> 20} MiB of memory."
        return (CANCELLED, "It was cancelled.") if self.is_cancelled() else None


def find_entry(path: Path, entry: str | None, *, links: bool) -> str | None:
    """The file to import from a submission that is a folder; None for a file. ValueError if there is none.

    Unless `links` are allowed, a symbolic link is none: it could lead to what a submission must not read.
    """
    shown = printable_text(path.name, 200)
    if path.is_symlink() and not links:
        raise ValueError(f"{shown} is a symbolic link; a submission is a file or a folder")
    if path.is_file():
        if entry is not None:
            raise ValueError(f"{shown} is a file, so it has no {entry}")
        return None
    if not path.is_dir():
        raise ValueError(f"{shown} {'is no file and no folder' if os.path.lexists(path) else 'does not exist'}")
    try:
        files = sorted(name for name in os.listdir(path) if is_python(name)) if entry is None else [entry]
    except OSError as error:
        raise ValueError(f"{shown} cannot be read: {error.strerror}") from None
    if len(files) != 1:
        raise ValueError(f"{shown} has {len(files)} Python files; name the one to import")
    inside = os.path.realpath(path / files[0])  # of links in a circle, it is one of them
    if not os.path.isfile(inside) or not inside.startswith(os.path.realpath(path) + os.sep):
        raise ValueError(f"{shown} has no file {printable_text(files[0], 200)}")
    return files[0]


def judge(received: Received, ended: Ended, limits: RunLimits, seconds: float, report: ProtectionReport) -> Outcome:
    """How a run ended, from what is known for certain first and from what its process says last."""
    output = printable_text(received.output.decode("utf-8", "backslashreplace"), limits.output_bytes)
    outcome = partial(Outcome, output=output, seconds=seconds, protection=report)
    if received.stopped:
        return outcome(*received.stopped)
    if not received.result.startswith(STARTED):
        reason = printable_text(received.result.decode("utf-8", "backslashreplace"), 1000)
        return outcome("not run", f"It was not run: {reason or 'its process did not start'}.")
    code = os.waitstatus_to_exitcode(ended.status)
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and ended.cpu_seconds >= limits.cpu_seconds):
        return outcome("out of time", f"It used {limits.cpu_seconds} s of processor time.")
    if code < 0:
        hint = "; the system may have run out of memory" if code == -signal.SIGKILL else ""
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return outcome("killed", f"Its process was killed by {name}{hint}.")
    result = received.result[len(STARTED) :]
    if not result:
        return outcome("ended early", SENTENCES["ended early"])
    try:
        tensors, values = unpack(result)
        if not isinstance(values, dict) or set(values) != {"failure", "values"}:
            raise MalformedPacket("its values are not {failure, values}")
        failure = read_failure(values["failure"])
    except ValueError as error:
        return outcome("malformed", f"What it returned is no result: {printable_text(str(error), 1000)}.")
    if failure is None:
        return outcome("finished", SENTENCES["finished"], tensors=tensors, values=values["values"])
    word = {"SystemExit": "ended early", "MemoryError": "out of memory"}.get(failure.type, "failed")
    message = f"{failure.type}: {failure.message}".rstrip(": ")
    return outcome(word, f"It raised {message}" if word == "failed" else SENTENCES[word], failure=failure)


@lru_cache(maxsize=8)
def _compiled(driver: str) -> str:
    """The code of a driver, for a process of the same Python: every run would compile it again."""
    return base64.b64encode(marshal.dumps(compile(driver, "<driver>", "exec"))).decode()


def _too_much(what: str, limits: RunLimits) -> tuple[str, str]:
    sentence = {
        "output": f"It printed more than {_size(limits.output_bytes)}.",
        "result": f"It returned more than {_size(limits.result_bytes)}.",
        "folder": f"It wrote more than {_size(limits.folder_bytes)} or {limits.folder_entries} files.",
    }
    return "wrote too much", sentence[what]


def _size(count: int) -> str:
    return f"{count} bytes" if count % MiB else f"{count // MiB} MiB"


def _read_sources(
    selector: selectors.BaseSelector, sources: dict[int, str], received: Received, limits: RunLimits
) -> None:
    """Read what has come from the result and the output; what is over, or too much, is read no more."""
    most = {"result": limits.result_bytes + len(STARTED), "output": limits.output_bytes}
    for descriptor, source in list(sources.items()):
        into: bytearray = getattr(received, source)
        try:
            while data := os.read(descriptor, 1 << 16):
                left = most[source] - len(into)
                into += data[:left]
                if len(data) > left:
                    received.stopped = received.stopped or _too_much(source, limits)
                    break
        except BlockingIOError:  # there may be more
            continue
        selector.unregister(descriptor)
        del sources[descriptor]


@contextmanager
def _channels(job: Job, values: dict[str, Any]) -> Iterator[tuple[list[int], dict[int, str]]]:
    """Descriptors for the submission's process (job, result, output), to be closed; and our ends of the last two."""
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile())
        file.write(pack(job.tensors, values))
        file.seek(0)
        ours, theirs = {}, [os.dup(file.fileno())]
        stack.callback(_close, theirs)
        for name in ("result", "output"):
            reader, writer = os.pipe()
            stack.callback(os.close, reader)
            os.set_blocking(reader, False)
            ours[reader] = name
            theirs.append(writer)
        yield theirs, ours


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
