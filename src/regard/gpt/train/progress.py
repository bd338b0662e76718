"""Progress of a run on stderr: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from regard.support.printable import printable, styled

LINE_INTERVAL = 10.0  # seconds between plain lines


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """A bar with loss, tokens per second and remaining time; with shown=False nothing is printed."""

    def __init__(self, steps: int, start: int, shown: bool) -> None:
        self.steps, self.shown = steps, shown
        self._bar: Any = None
        self._printed = time.monotonic()
        self._speed = 0.0  # steps per second
        if shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (BarColumn(16), MofNCompleteColumn(), TextColumn("{task.description}"))
            self._bar = Progress(TextColumn(" "), *columns, console=Console(file=styled(sys.stderr), highlight=False))
            self._task = self._bar.add_task("", total=steps, completed=start)

    def __enter__(self) -> ProgressBar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, line: Mapping[str, Any], seconds_per_step: float) -> None:
        """Show a step by its line of the log."""
        step, speed = line["step"], 1 / max(seconds_per_step, 1e-9)
        self._speed = 0.8 * self._speed + 0.2 * speed if self._speed else speed
        remaining = duration((self.steps - step) / self._speed)
        text = f"loss {line['loss']:.3f} · {line['tokens_per_second']:,.0f} tokens/s · {remaining} left"
        if self._bar is not None:
            self._bar.update(self._task, completed=step, description=text)
        elif time.monotonic() - self._printed > LINE_INTERVAL or step == self.steps:
            self._printed = time.monotonic()
            self.print(f"step {step:,} of {self.steps:,} · {text}")
        if "val_loss" in line:
            self.print(f"step {step:,} · validation loss {line['val_loss']:.4f}")
        if "sample" in line:
            self.print(f"step {step:,} · {' '.join(line['sample'].split())}")

    def print(self, text: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(f"  {printable(text)}", markup=False, soft_wrap=True)
        elif self.shown:
            print(f"  {printable(text)}", file=sys.stderr, flush=True)


def note(text: str, shown: bool) -> None:
    """Say what a person must know of a run: on stderr, or as a Python warning where progress is not shown."""
    if shown:
        print(f"  {text}", file=sys.stderr, flush=True)
    else:
        warnings.warn(text, stacklevel=2)


def duration(seconds: float) -> str:
    """Seconds in a readable unit: 7 s, 1 min 07 s, 1 h 06 min."""
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
