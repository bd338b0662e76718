"""The process of one submission: protect it, load the submission, run the driver, write down what came of it.

From the moment the submission is loaded, nothing that this process says can be trusted. Its result is numbers, which
the supervisor compares with a reference that was never here.
"""

from __future__ import annotations

import base64
import faulthandler
import fcntl
import importlib.util
import marshal
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch import Tensor

from regard.school.sandbox.landlock import Grant
from regard.school.sandbox.limits import RunLimits, release_spare_memory
from regard.school.sandbox.modules import add_neighbours, load_module
from regard.school.sandbox.packets import pack, unpack
from regard.school.sandbox.protection import protect
from regard.school.sandbox.statements import SPARE_SECONDS

STARTED = b"started\n"  # written before the submission is loaded, so this at least is no forgery
JOB, RESULT = 3, 4  # file descriptors that the job is read from and the result is written to


class NothingOfRegard(MetaPathFinder):
    """Says why regard cannot be imported. What keeps its files from being read is Landlock."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.split(".")[0] == "regard":
            raise ImportError("regard cannot be imported here: a submission is checked without it", name=name)
        return None


def run_job(descriptors: Sequence[int], layers: Sequence[str], grants: Sequence[Grant]) -> NoReturn:
    """Turn this process into the one of a submission, given the descriptors of its job, its result and its output."""
    code, started = 1, False
    try:
        with suppress(PermissionError):  # it leads a session already
            os.setsid()
        _arrange(*descriptors)
        with open(JOB, "rb") as job:
            tensors, spec = unpack(job.read())
        _settle(spec)
        protect(layers, RunLimits(**spec["limits"]), grants, spec)
        _write_all(STARTED)
        started = True
        if not spec["confined"]:  # writes to stderr what runs shortly before time is over; see outcome.py
            seconds = spec["limits"]["wall_seconds"]
            faulthandler.dump_traceback_later(max(seconds - 1, seconds / 2), file=2)
        _write_all(_run(spec, tensors))
        code = 0
    except BaseException as error:
        if not started:
            _write_all(f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)  # no hooks, no destructors, no waiting for threads


def _arrange(job: int, result: int, output: int) -> None:
    """The descriptors 0 to 4 are stdin, stdout, stderr, the job and the result; there are no others."""
    null = os.open(os.devnull, os.O_RDONLY)
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 16) for fd in (null, output, output, job, result)]
    for fd, source in enumerate(high):
        os.dup2(source, fd, inheritable=False)
    try:
        opened = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        opened = list(range(256))
    for fd in opened:
        if fd > RESULT:
            with suppress(OSError):  # the one that listed them is closed already
                os.close(fd)
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        text = open(fd, "w" if fd else "r", 1, "utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def _settle(spec: Mapping[str, Any]) -> None:
    """The place where a submission finds itself: folders, environment, and no trace of regard."""
    folder = os.environ["TMPDIR"] = spec["folder"]
    tempfile.tempdir = None
    if not spec["imported"]:
        for name in [name for name in sys.modules if name.split(".")[0] == "regard"]:
            del sys.modules[name]
    if spec["confined"]:
        os.environ["HOME"] = folder
        os.chdir(folder)
        os.umask(0o077)
        sys.meta_path.insert(0, NothingOfRegard())
    else:
        os.chdir(spec["working_folder"])


def _run(spec: Mapping[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """Load the submission, run the driver with it, and pack the result or the failure."""
    packed, out, err = pack, sys.stdout, sys.stderr  # before the submission can put others in their place
    stage = "driver"
    try:
        names: dict[str, Any] = {"__name__": "driver"}
        exec(marshal.loads(base64.b64decode(spec["driver"])), names)
        drive, submission = names["drive"], spec["submission"]
        stage = "load"
        if spec["loads"]:
            text = {name: spec[name] for name in ("source", "spare_seconds")}
            submission = load_submission(submission, spec["entry"], alone=spec["confined"], **text)
        stage = "run"
        result = drive(submission, tensors, spec["values"])
        stage = "driver"
        named, values = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        if not isinstance(named, dict):
            kind = type(named).__name__
            raise TypeError(f"drive returned {kind}; it returns a dict of tensors, or such a dict and JSON")
        answer = packed(named, {"failure": None, "values": values})
    except BaseException as error:
        release_spare_memory()
        answer = packed({}, {"failure": describe_failure(error, stage, spec["submission"]), "values": None})
    for stream in (out, err):
        with suppress(BaseException):  # it may be closed, which is no failure
            stream.flush()
    return answer


def load_submission(
    path: str, entry: str | None, *, alone: bool, source: str | None = None, spare_seconds: float = SPARE_SECONDS
) -> ModuleType:
    """Import a file, or the file `entry` of a folder. Unless the file is `alone`, it can import its neighbours.

    If its text is known, it runs statement by statement, and what fails is skipped.
    """
    file = path if entry is None else os.path.join(path, entry)
    stem = os.path.splitext(os.path.basename(file))[0]
    taken = stem in sys.modules or stem in sys.stdlib_module_names or not stem.isidentifier()
    name = "submission" if taken else stem
    if source is not None:
        os.environ.setdefault("MPLBACKEND", "Agg")
        if entry is not None or not alone:
            add_neighbours(file, path if entry is not None else os.path.dirname(path))
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            return load_module(name, source, file, spare_seconds)
    if entry is not None or not alone:
        sys.path.insert(0, os.path.dirname(file))
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{os.path.basename(file)} is no Python file; its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def describe_failure(error: BaseException, stage: str, submission: str) -> dict[str, Any]:
    """An exception as JSON: its type and message, and the lines of the submission that it passed through."""
    root = submission if os.path.isdir(submission) else os.path.dirname(submission)
    frames = traceback.walk_tb(error.__traceback__)
    places: list[tuple[Any, Any, str]] = [(one.f_code.co_filename, line, one.f_code.co_name) for one, line in frames]
    if isinstance(error, SyntaxError):
        places.append((error.filename, error.lineno, ""))
    # The filename of a SyntaxError is whatever the submission put there.
    named = [one for one in places if isinstance(one[0], str)]
    own = [one for one in named if one[0] == submission or one[0].startswith(submission + os.sep)]
    lines = [[os.path.relpath(file, root), line, name] for file, line, name in own if isinstance(line, int)]
    kind, message = type(error).__name__, "its message could not be read"
    with suppress(BaseException):  # its __str__ is the submission's
        message = error.msg if isinstance(error, SyntaxError) else str(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in message:
        kind = "MemoryError"
    if len(lines) > 40:
        lines = lines[:20] + lines[-20:]
    return {"type": kind[:200], "message": str(message)[:4000], "stage": stage, "lines": lines}


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(RESULT, view) :]
