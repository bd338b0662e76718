"""The worker's process: it has imported torch once, and forks a process for each job. No submission runs in it.

It is started without regard: only the files of this folder are loaded, so that what it forks holds no reference.
Messages are lines of JSON on a socket; a job comes with three file descriptors.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from regard.school.sandbox.landlock import Grant
from regard.school.sandbox.limits import RunLimits
from regard.school.sandbox.protection import LAYERS, Protection, attempt, library_grants, protect
from regard.school.sandbox.system_calls import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, process_control

MOST_BYTES = 1 << 16  # of a message
COUNT_EVERY = 0.05  # seconds between two counts of a submission's threads


class Messages:
    """Lines of JSON on a socket, with file descriptors."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._buffer = b""

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        socket.send_fds(self.connection, [json.dumps(message).encode() + b"\n"], list(descriptors))

    def receive(self) -> tuple[dict[str, Any] | None, list[int]]:
        """The next message and its descriptors; None when the other side is gone."""
        descriptors: list[int] = []
        while b"\n" not in self._buffer:
            data = b""
            with suppress(ConnectionResetError):  # it is gone, and did not read everything
                data, fds, _, _ = socket.recv_fds(self.connection, MOST_BYTES, 3)
                descriptors += fds
            if not data:
                return None, descriptors
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line), descriptors

    @property
    def waiting(self) -> bool:
        """Has a message been read from the socket that nobody has received?"""
        return b"\n" in self._buffer


def serve_jobs(descriptor: int) -> None:
    """Be a worker until the supervisor closes its end."""
    messages = Messages(socket.socket(fileno=descriptor))
    config, _ = messages.receive()
    if config is None:
        return
    for path in config["path"]:
        if path not in sys.path:
            sys.path.append(path)
    _warm_up()
    if config["imported"]:
        _import_all(config["imported"])
    else:
        _warm_up_gradients()
    gc.collect()
    gc.freeze()  # the collector of a forked process would copy all of this memory
    protection = Protection(tuple(config["layers"]), tuple(config["hidden"]))
    grants = library_grants(protection) if protection.confined else []
    report = try_layers(protection, grants)
    layers = [layer for layer in protection.layers if report[layer] is None]
    with suppress(OSError):
        process_control(PR_SET_CHILD_SUBREAPER, 1)  # what a submission leaves behind becomes this process's to end
    messages.send({"ready": report})
    while True:
        message, descriptors = messages.receive()
        if message is None:
            return
        if "job" in message:
            _run(message["job"], messages, descriptors, layers, grants, message["threads"], forks=config["forks"])


def _warm_up() -> None:
    """Import torch, and run what is slow the first time only."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # a process with several threads cannot fork
    import torch

    torch.set_num_threads(1)
    layer = torch.nn.Linear(3, 5)
    (layer(torch.randn(2, 3)).softmax(-1) @ torch.randn(5, 7)).sum().backward()


def _warm_up_gradients() -> None:
    """Gradients of a tensor, where torch imports sympy the first time: 0.3 s, which each experiment would pay for."""
    import torch

    x = torch.ones(3, requires_grad=True)
    torch.autograd.grad(x * 2, x, torch.ones(3))


def _import_all(names: Sequence[str]) -> None:
    """Import modules for a person's own file: the whole of this regard, in place of the files of this folder."""
    for name in [name for name in sys.modules if name.split(".")[0] == "regard"]:
        del sys.modules[name]
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))
    for name in names:
        import_module(name)
    del sys.path[0]


def try_layers(protection: Protection, grants: Sequence[Grant]) -> dict[str, str | None]:
    """For each layer, the reason why it is missing, or None if it works; tried in a process of its own."""
    if not sys.platform.startswith("linux"):
        return {layer: None if layer == "limits" else "needs Linux" for layer in protection.layers}
    job = {"submission": os.devnull, "folder": tempfile.mkdtemp()}
    report: dict[str, str | None] = {}
    for layer in (name for name in LAYERS if name in protection.layers):
        reader, writer = os.pipe()
        if not (pid := os.fork()):
            try:
                protect([layer], RunLimits(), grants, job)
                answer = attempt(layer) or ""
            except BaseException as error:
                answer = f"{error}"
            os.write(writer, answer.encode()[:4000])
            os._exit(0)
        os.close(writer)
        with open(reader, "rb") as file:
            answer = file.read().decode()
        _, status = os.waitpid(pid, 0)
        report[layer] = answer or (f"the process that tried it ended with status {status}" if status else None)
    os.rmdir(job["folder"])
    return report


def _run(
    number: int,
    messages: Messages,
    descriptors: list[int],
    layers: list[str],
    grants: Sequence[Grant],
    threads: int,
    *,
    forks: bool,
) -> None:
    from regard.school.sandbox.child import run_job

    if not forks:
        run_job(descriptors, layers, grants)
    worker, pid = os.getpid(), os.fork()
    if not pid:
        with suppress(OSError):  # it ends with this process
            process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != worker:
            os._exit(1)
        run_job(descriptors, layers, grants)
    for descriptor in descriptors:
        os.close(descriptor)
    status, usage, crowded = _wait(pid, number, messages, threads)
    _end_orphans()
    cpu = usage.ru_utime + usage.ru_stime
    with suppress(OSError):  # the supervisor may be gone
        messages.send({"ended": number, "status": status, "cpu": cpu, "crowded": crowded})


def _wait(pid: int, number: int, messages: Messages, threads: int) -> tuple[int, Any, bool]:
    """Wait for the end of a process, and end it when the supervisor says so or is gone, or it has too many threads.

    The last of the three results says whether it had. No limit of the kernel counts the threads of one process.
    """
    crowded = False
    try:
        handles = [os.pidfd_open(pid)]  # readable when the process has ended
    except (AttributeError, OSError):  # an older kernel
        handles = []
    watched: list[Any] = [messages.connection, *handles]
    while True:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            _kill_session(pid)  # as long as nobody has waited for it, its number is no other process's
            for handle in handles:
                os.close(handle)
            return *os.wait4(pid, 0)[1:], crowded
        ready, _, _ = select.select(watched, [], [], COUNT_EVERY if handles else 0.005)
        if not ready and not crowded and _threads(pid) > threads:
            crowded = True
            _kill_session(pid)
        if messages.waiting or messages.connection in ready:
            message, _ = messages.receive()
            if message is None or message.get("kill") == number:
                _kill_session(pid)
            if message is None:
                watched = watched[1:]


def _threads(pid: int) -> int:
    """How many threads a process has; 0 where that cannot be known."""
    with suppress(OSError, ValueError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[17])
    return 0


def _kill_session(pid: int) -> None:
    for kill in (os.kill, os.killpg):
        with suppress(OSError):
            kill(pid, signal.SIGKILL)


def _end_orphans() -> None:
    """End what a submission started and left in other sessions; with all layers, it could start nothing."""
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            for child in _children():
                _kill_session(child)
            select.select([], [], [], 0.001)


def _children() -> list[int]:
    """The processes whose parent is this one."""
    children = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
            # The second field is a name in brackets, with anything in it.
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                children.append(int(name))
    return children
