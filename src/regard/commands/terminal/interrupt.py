"""Ctrl-C at any moment: the process ends with status 130, without a traceback and with a visible cursor."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from regard.support.printable import styled

STATUS = 130  # as shells report a program that Ctrl-C ended: 128 + SIGINT
_SHOW_CURSOR = "\x1b[?25h"


class Interruption:
    """Whether Ctrl-C has arrived."""

    arrived = False


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Inside this block, Ctrl-C raises KeyboardInterrupt; during an import it ends the process at once.

    An import cannot be interrupted by an exception: packages with C extensions turn it into an ImportError, or lose it.
    """
    interruption = Interruption()

    def handle(number: int, frame: FrameType | None) -> None:
        interruption.arrived = True
        if _is_importing(frame):
            leave()
        raise KeyboardInterrupt

    # A program in the background of a script is started with SIGINT ignored; only the main thread may set handlers.
    before: Any = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)


def leave(*_: Any) -> None:
    """End the process at once, with the status of Ctrl-C; also a signal handler."""
    with suppress(Exception):
        sys.stdout.flush()
    with suppress(Exception):
        if sys.stderr.isatty():
            styled(sys.stderr).write(_SHOW_CURSOR + "\n")
        sys.stderr.flush()
    os._exit(STATUS)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") in ("importlib._bootstrap", "_frozen_importlib"):  # one module, two names
            return True
        frame = frame.f_back
    return False
