"""A worker's process as the supervisor sees it: starting it, giving it a job, ending it."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from regard.school.sandbox.protection import Protection, ProtectionMissing, ProtectionReport
from regard.school.sandbox.runner import Messages

PACKAGE = Path(__file__).resolve().parents[2]
# regard itself is not imported, only the files of this folder: what runs in the worker must not hold a reference.
START = (
    "import sys, types; package = types.ModuleType('regard'); package.__path__ = [sys.argv[2]]; "
    "sys.modules['regard'] = package; from regard.school.sandbox.runner import serve_jobs; serve_jobs(int(sys.argv[1]))"
)
KEPT = ("LD_LIBRARY_PATH", "PATH", "TMPDIR")  # of the environment, for other people's code
LONGEST_START = 180.0  # seconds
GRACE = 2.0  # seconds for a worker to end by itself
FORKS = sys.platform.startswith("linux")  # elsewhere, a process that has run torch cannot be relied on after a fork


def _home_of_torch() -> str:
    """The folder that torch is imported from; it is not imported for that, so that a worker can start early."""
    spec: Any = find_spec("torch")
    return str(Path(spec.origin).parents[1])


class WorkerDied(RuntimeError):
    """A worker's process ended by itself, or does not answer."""


class RunCancelled(Exception):
    """A run that its supervisor was asked to end. The worker stays warm."""


class Ended(NamedTuple):
    """How a submission's process ended."""

    status: int  # as of os.waitpid
    cpu_seconds: float
    crowded: bool = False  # it was ended because it had too many threads


class WorkerProcess:
    """A process that has torch and waits for jobs. Where it cannot fork, it takes one job and is not used again."""

    def __init__(self, protection: Protection, forks: bool = FORKS) -> None:
        self.protection, self.forks = protection, forks
        self._report: ProtectionReport | None = None
        self.memory_at_start = 0  # where memory is measured and not limited
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        ours, theirs = socket.socketpair()
        # -I: no modules from the current folder or PYTHONPATH; -B: nothing is written next to the sources.
        command = [sys.executable, "-I", "-B", "-c", START, str(theirs.fileno()), str(PACKAGE)]
        with theirs:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors,
                pass_fds=[theirs.fileno()], env=self._environment(),
                start_new_session=True,  # Ctrl-C is for the supervisor
            )  # fmt: skip
        self.messages = Messages(ours)
        path = [_home_of_torch()] if protection.confined else [os.path.abspath(p) for p in sys.path]
        config = {**asdict(protection), "path": path, "forks": forks}
        with suppress(OSError):  # it has died already, which wait_until_ready will say
            self.messages.send(config)

    def _environment(self) -> dict[str, str]:
        """The worker's environment: no secrets for other people's code, and no GPU, which fails after a fork."""
        kept = {name: os.environ[name] for name in os.environ if name in KEPT or not self.protection.confined}
        return {**kept, "LC_ALL": "C.UTF-8", "CUDA_VISIBLE_DEVICES": ""}

    def wait_until_ready(self) -> ProtectionReport:
        """Wait for the import of torch; the layers of protection that work. ProtectionMissing if one is missing."""
        if self._report is None:
            self.messages.connection.settimeout(LONGEST_START)
            try:
                message, _ = self.messages.receive()
            except OSError as error:
                raise self._died(f"the worker did not start within {LONGEST_START:.0f} s") from error
            if message is None:
                raise self._died("the worker's process ended while it started")
            self.messages.connection.settimeout(None)
            missing = {layer: reason for layer, reason in message["ready"].items() if reason is not None}
            self._report = ProtectionReport(tuple(one for one in message["ready"] if one not in missing), missing)
            self.memory_at_start = 0 if FORKS else self.resident_bytes()
        if self._report.missing and self.protection.confined and not self.protection.missing_allowed:
            raise ProtectionMissing(self._report)
        return self._report

    def send_job(self, number: int, descriptors: Sequence[int], threads: int) -> None:
        """Start a job that may have so many threads."""
        try:
            self.messages.send({"job": number, "threads": threads}, descriptors)
        except OSError as error:
            raise self._died("the worker's process ended before the job") from error

    def kill_job(self, number: int) -> None:
        if not self.forks:
            self._kill()
            return
        with suppress(OSError):
            self.messages.send({"kill": number})

    def wait(self, selector: selectors.BaseSelector, number: int, seconds: float) -> Ended | None:
        """Wait until the job ends, a descriptor of the selector is readable, or time is over; how it ended, or None."""
        if not self.forks:
            return self._poll(selector, seconds)
        ready = [] if self.messages.waiting else [key.fileobj for key, _ in selector.select(seconds)]
        if not self.messages.waiting and self.messages.connection not in ready:
            return None
        message, _ = self.messages.receive()
        if message is None:
            raise self._died("the worker's process died during the job")
        ended = message.get("ended") == number
        return Ended(message["status"], message["cpu"], message["crowded"]) if ended else None

    def _poll(self, selector: selectors.BaseSelector, seconds: float) -> Ended | None:
        """Where the job runs in the worker's own process."""
        end = time.monotonic() + seconds
        while True:
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self._kill()  # what it left behind
                return Ended(status, usage.ru_utime + usage.ru_stime)
            left = min(0.01, end - time.monotonic())
            if left <= 0 or any(key.fileobj is not self.messages.connection for key, _ in selector.select(left)):
                return None

    def resident_bytes(self) -> int:
        """The memory of the worker's process; for systems that do not limit it. 0 if it cannot be told."""
        command = ["ps", "-o", "rss=", "-p", str(self._process.pid)]
        with suppress(OSError, ValueError):
            return int(subprocess.run(command, capture_output=True, text=True).stdout) * 1024
        return 0

    def _died(self, what: str) -> WorkerDied:
        """The error, with the last line that the worker's process wrote."""
        self._kill()
        self._process.wait()
        self._errors.seek(0)
        last = self._errors.read()[-2000:].decode("utf-8", "replace").strip().splitlines()[-1:]
        return WorkerDied(": ".join([what, *last]))

    def hang_up(self) -> None:
        """Make a wait for this process, in another thread, end with WorkerDied; the process ends its job and itself."""
        with suppress(OSError):
            self.messages.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.messages.connection.close()
        if self.forks and self._report is not None:
            with suppress(subprocess.TimeoutExpired):  # it ends what a submission left behind, and then itself
                self._process.wait(GRACE)
        if self._process.returncode is None:
            self._kill()
            self._process.wait()
        self._errors.close()

    def _kill(self) -> None:
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it leads its session
