"""A real server in a thread, and raw connections to it."""

import socket
import threading
import time
from contextlib import contextmanager

import uvicorn

from regard.show.server import listen
from regard.show.server.app import create_app
from regard.show.server.limits import Limits


@contextmanager
def running(see, limits=None, monkeypatch=None, cuts=False):
    """A server on a free port, with uvicorn as run_server sets it up; gives the app and the port."""
    limits = limits or Limits()
    app = create_app(see, ["tiny"], "The cat", cuts=cuts, limits=limits)
    servers = []

    class Kept(uvicorn.Server):
        def __init__(self, config):
            super().__init__(config)
            servers.append(self)

    monkeypatch.setattr(uvicorn, "Server", Kept)
    with listen.open_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        thread = threading.Thread(target=listen.run_server, args=(app, listening, limits))
        thread.start()
        while not (servers and servers[0].started):
            time.sleep(0.01)
        try:
            yield app, port
        finally:
            servers[0].should_exit = True
            thread.join(timeout=30)
            assert not thread.is_alive()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def request(body, method="POST", path="/api/see", **headers):
    """A request as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}"]
    lines += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read_all(connection):
    """Everything until the other side closes; what it closes without an answer is b""."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def status(answer):
    return int(answer.split(b" ", 2)[1]) if answer else None
