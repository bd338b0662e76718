"""Runs commands as a person does: in a terminal of a given size, or piped. Needs a POSIX system."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import NamedTuple

SOURCE = str(Path(__file__).parent.parent / "src")
# Of the person who runs the tests; each run sets what it is about.
PERSONAL = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "LC_ALL", "LANG", "PYTHONIOENCODING", "PYTHONUTF8")
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
NO_HOME = {"HOME": "/dev/null/home"}  # nobody can write there, not even root
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Ended(NamedTuple):
    """What a command wrote, and its exit status."""

    out: str
    err: str
    status: int

    @property
    def lines(self) -> list[str]:
        """The lines as they are seen: without escape sequences, those that were overwritten too."""
        return re.split(r"[\r\n]+", ESCAPE.sub("", self.out))

    @property
    def kept(self) -> str:
        """What stays on the screen: without what was said while something took longer than a second."""
        return re.sub(r"[^\r\n]*\r +\r", "", self.out)

    @property
    def width(self) -> int:
        """The columns of the longest line."""
        return max(map(len, self.lines))


def piped(*arguments: str, **environment: str) -> Ended:
    """Run `regard` with arguments; stdin is empty, stdout and stderr are pipes."""
    command = [sys.executable, "-m", "regard", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=surroundings(environment))
    return Ended(done.stdout.decode(), done.stderr.decode(), done.returncode)


def as_nobody(*arguments: str) -> Ended | None:
    """Run `regard` as a user who owns nothing, in a folder and with a home that cannot be written; None if impossible.

    Root can become another user, and needs an interpreter of the same version that others may run.
    """
    if os.geteuid() != 0:
        return None
    interpreters = [sys._base_executable, f"/usr/bin/python3.{sys.version_info.minor}"]
    packages = [path for path in sys.path if path.endswith("-packages")]
    environment = {"PYTHONPATH": os.pathsep.join([SOURCE, *packages]), "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    for interpreter in interpreters:
        try:
            done = subprocess.run(
                [interpreter, "-m", "regard", *arguments],
                user=65534,
                group=65534,
                extra_groups=[],
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        except OSError:  # it does not exist, or lies in a folder of root's
            continue
        return Ended(done.stdout.decode(), done.stderr.decode(), done.returncode)
    return None


def in_terminal(*arguments: str, columns: int = 80, ctrl_c_after: str | None = None, **environment: str) -> Ended:
    """Run `regard` with arguments in a terminal of its own; stdout and stderr are both on its screen.

    ctrl_c_after: press Ctrl-C as soon as this text is on the screen.
    environment: variables to set; FIRST_PATH is a directory to import from before all others.
    """
    keyboard, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "regard", *arguments]
    variables = surroundings({"TERM": "xterm-256color"} | environment)
    # A session of its own, with this terminal: only then does Ctrl-C become a signal.
    process = subprocess.Popen(
        [sys.executable, "-c", _OWN_TERMINAL, *command],
        stdin=screen,
        stdout=screen,
        stderr=screen,
        env=variables,
        start_new_session=True,
    )
    os.close(screen)
    out, decoder, start, pressed = "", codecs.getincrementaldecoder("utf-8")(), time.monotonic(), False
    while True:
        if select.select([keyboard], [], [], 0.02)[0]:
            try:
                out += decoder.decode(os.read(keyboard, 65536))
            except OSError:  # Linux's way to say that the other side is closed
                break
        if ctrl_c_after is not None and ctrl_c_after in out and not pressed:
            os.write(keyboard, b"\x03")
            pressed = True
        if time.monotonic() - start > 120:
            process.kill()
            raise TimeoutError(f"{' '.join(arguments)} has not ended after 120 s; on its screen:\n{out}")
    os.close(keyboard)
    return Ended(out, "", process.wait())


_OWN_TERMINAL = (
    # A terminal's own program does not ignore Ctrl-C, even where the tests run in the background and do.
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)


def hear_interrupts() -> None:
    """For a child, before it starts: a process in the background is started with SIGINT ignored, and hands that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def surroundings(changes: dict[str, str]) -> dict[str, str]:
    """The environment of a run: that of the tests without what is personal, and these changes."""
    kept = {name: value for name, value in os.environ.items() if name not in PERSONAL}
    path = os.pathsep.join(filter(None, [changes.pop("FIRST_PATH", ""), SOURCE, os.environ.get("PYTHONPATH")]))
    # One thread: these runs are short, and often several run at a time.
    return kept | {"PYTHONPATH": path, "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"} | changes
