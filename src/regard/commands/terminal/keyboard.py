"""Single keys from a terminal, without Enter. The terminal is put back at the end, and when Ctrl-C ends the process."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from types import FrameType
from typing import Any

END = "\x04"  # Ctrl-D, and the end of input
UP, DOWN = "\x10", "\x0e"  # the arrows are read as Ctrl-P and Ctrl-N, which mean the same elsewhere
_ARROWS = {"A": UP, "B": DOWN}
_ESCAPE = re.compile(r"\x1b(?:[\[O][0-9;]*(.)?|.?)", re.DOTALL)  # what keys without a character send


class Keyboard:
    """Inside this block, keys are read one by one and not echoed.

    `is_redrawn` is set when the terminal has another size, or the process was stopped and goes on: draw again.
    """

    def __init__(self) -> None:
        self.is_redrawn = False
        self._input = sys.stdin.fileno()
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Keyboard:
        self._before = termios.tcgetattr(self._input)
        chosen = {signal.SIGINT: self._interrupt, signal.SIGTERM: self._end}
        for number, handle in (chosen | dict.fromkeys((signal.SIGCONT, signal.SIGWINCH), self._redraw)).items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, handle)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        for number, handle in self._handlers.items():
            signal.signal(number, handle)

    def read(self, seconds: float) -> str:
        """The keys that were pressed, at most so many seconds later; "" if none was. Arrows: only up and down."""
        if not select.select([self._input], [], [], seconds)[0]:
            return ""
        try:
            typed = os.read(self._input, 1024)
        except OSError:  # the terminal was closed
            typed = b""
        if not typed:
            return END
        return _ESCAPE.sub(lambda key: _ARROWS.get(key[1] or "", ""), typed.decode("utf-8", "ignore"))

    def _take(self) -> None:
        tty.setcbreak(self._input, termios.TCSADRAIN)  # what was typed ahead is kept

    def _give_back(self) -> None:
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._give_back()  # the handler below may end the process at once
        before = self._handlers[number]
        if not callable(before):
            raise KeyboardInterrupt
        before(number, frame)

    def _end(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def _redraw(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGCONT:
            self._take()  # a process that was stopped has lost it
        self.is_redrawn = True
