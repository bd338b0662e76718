"""Progress of a benchmark on stderr."""

from __future__ import annotations

import sys
from typing import Any

from regard.support.printable import styled


class StageProgress:
    """The current stage on stderr: a bar in a terminal if rich is installed, otherwise a line for each stage.

    >>> with StageProgress() as progress:
    ...     progress.stage("warming up")
    ...     progress.tick(1, 2)
    """

    def __init__(self) -> None:
        self._bars: Any = None
        self._bar: Any = None
        if sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import Progress as Bars
            except ImportError:
                return
            # Tables are printed to stdout; by default rich would redirect them.
            self._bars = Bars(console=Console(file=styled(sys.stderr)), transient=True, redirect_stdout=False)

    def __enter__(self) -> StageProgress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def stage(self, text: str) -> None:
        """Begin a stage."""
        if self._bars is None:
            print(f"  {text} ...", file=sys.stderr, flush=True)
            return
        if self._bar is not None:
            self._bars.remove_task(self._bar)
        self._bar = self._bars.add_task(text, total=None)

    def tick(self, done: int, total: int) -> None:
        """Update the bar of the stage."""
        if self._bars is not None and self._bar is not None:
            self._bars.update(self._bar, completed=done, total=total)
