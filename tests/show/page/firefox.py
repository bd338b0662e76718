"""A page in Firefox, driven by its own protocol (Marionette), so that nothing but the browser is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
needs_firefox = pytest.mark.skipif(
    FIREFOX is None and not os.environ.get("REGARD_NEEDS_FIREFOX"), reason="needs Firefox"
)
_PREFERENCES = {"datareporting.policy.dataSubmissionEnabled": False, "network.captive-portal-service.enabled": False}


class Firefox:
    """A session: `run` evaluates JavaScript in the page and returns what it returns."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._count = 0
        self._receive()  # the greeting
        self._ask("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {"acceptInsecureCerts": False}}})

    def open(self, address: str) -> None:
        """Go there, and wait until everything is drawn."""
        self._ask("WebDriver:Navigate", {"url": "about:blank"})
        self._ask("WebDriver:Navigate", {"url": address})
        self.wait('document.querySelector("#regard[data-ready]")')

    def size(self, width: int, height: int) -> None:
        """Set the size of the window."""
        self._ask("WebDriver:SetWindowRect", {"width": width, "height": height})

    def run(self, script: str) -> Any:
        """Evaluate an expression."""
        return self._ask("WebDriver:ExecuteScript", {"script": f"return ({script});", "args": []})["value"]

    def wait(self, script: str, seconds: float = 30) -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(f"Boolean({script})")):
            assert time.monotonic() < end, f"not within {seconds} s: {script}"
            time.sleep(0.05)
        return value

    def picture(self) -> bytes:
        """The window as a PNG."""
        return base64.b64decode(self._ask("WebDriver:TakeScreenshot", {"full": False})["value"])

    def _ask(self, command: str, parameters: dict[str, Any]) -> Any:
        self._count += 1
        content = json.dumps([0, self._count, command, parameters]).encode()
        self._stream.sendall(str(len(content)).encode() + b":" + content)
        _, _, error, result = self._receive()
        assert error is None, error
        return result

    def _receive(self) -> Any:
        size = b""
        while not size.endswith(b":"):
            size += self._stream.recv(1)
        content = b""
        while len(content) < int(size[:-1]):
            content += self._stream.recv(65_536)
        return json.loads(content)


@contextmanager
def firefox(folder: Path) -> Iterator[Firefox]:
    """Firefox without a window, with a profile of its own in this folder."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    profile = folder / "profile"
    profile.mkdir()
    preferences = _PREFERENCES | {"marionette.port": port}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in preferences.items()]
    (profile / "user.js").write_text("\n".join(lines))
    command = [str(FIREFOX), "--headless", "--marionette", "--no-remote", "--profile", str(profile)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    browser = subprocess.Popen(command, env=os.environ | {"HOME": str(folder)}, **quiet)
    try:
        with closing(_connect(port)) as stream:
            yield Firefox(stream)
    finally:
        browser.terminate()
        browser.wait(20)


def _connect(port: int, seconds: float = 60) -> socket.socket:
    end = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except OSError:
            assert time.monotonic() < end, "Firefox does not answer"
            time.sleep(0.2)
