"""Listening: the socket, and uvicorn with limits for slow clients.

uvicorn alone waits without end for the headers of a request, and for a client that does not read its answer.
"""

import asyncio
import errno
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.show.server.limits import Limits


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            other = port + 1 if port < 65535 else 8765
            raise ValueError(f"--port {port} is in use; try --port {other}, or --port 0 for a free one") from None
        reason = str(error.strerror or error).partition(" (while")[0]
        failed = f"cannot listen on --host {host} --port {port}: {reason}"
        raise ValueError(f"{failed}; try --host 127.0.0.1 --port 0") from None


def address(listening: socket.socket) -> str:
    """Where a browser on this computer finds it."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def run_server(app: Any, listening: socket.socket, limits: Limits) -> None:
    """Answer until Ctrl-C, which raises KeyboardInterrupt once open requests are answered or a second has passed."""

    class LimitedProtocol(PatientProtocol):
        seconds = limits

    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        lifespan="off",
        log_level="critical",  # the app reports its own failures
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[listening])


class PatientProtocol(H11Protocol):  # type: ignore[misc]
    """A connection that is closed when no request arrives on it in time, or its answer is not read.

    A client connects, sends bytes, gets its answer, and may send again; writing pauses while it does not read.
    """

    seconds = Limits()
    _idle: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch_idle()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_idle()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_idle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.seconds.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop(self._stalled)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._idle)
        self._stop(self._stalled)
        super().connection_lost(exc)

    def _watch_idle(self) -> None:
        """Count the seconds without a request to answer; bytes that are no whole head do not start them again."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop(self._idle)
            self._idle = None
        elif self._idle is None:
            self._idle = self.loop.call_later(self.seconds.head_seconds, self.transport.abort)

    def _stop(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
