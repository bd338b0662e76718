"""How a run looks while it runs: a bar on a terminal, plain lines elsewhere, and the loss as a picture."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

EVERY = 10.0  # seconds between plain lines


class Progress(AbstractContextManager["Progress"]):
    """A bar with loss, tokens a second and time left, on stderr; `shown=False` is silence."""

    def __init__(self, steps: int, start: int, shown: bool) -> None:
        self.steps, self.shown, self.step = steps, shown, start
        self._bar: Any = None
        self._task: Any = None
        self._said = time.monotonic()
        self._speed = 0.0  # steps a second
        if shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(16), MofNCompleteColumn(), TextColumn("{task.description}"))
            self._bar = Bar(TextColumn(" "), *columns, console=Console(stderr=True, highlight=False))
            self._task = self._bar.add_task("", total=steps, completed=start)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, line: Mapping[str, Any], seconds_a_step: float) -> None:
        """A step is done: what its line in the log says, and how long one takes now."""
        self.step = line["step"]
        speed = 1 / max(seconds_a_step, 1e-9)
        self._speed = speed if not self._speed else 0.8 * self._speed + 0.2 * speed
        words = f"loss {line['loss']:.3f} · {line['tokens_per_second']:,.0f} tokens/s · {self.left} left"
        if self._bar is not None:
            self._bar.update(self._task, completed=self.step, description=words)
        elif self.shown and (time.monotonic() - self._said > EVERY or self.step == self.steps):
            self._said = time.monotonic()
            self.say(f"step {self.step:,} of {self.steps:,} · {words}")
        if "val_loss" in line:
            self.say(f"step {self.step:,} · validation loss {line['val_loss']:.4f}")
        if "sample" in line:
            self.say(f"step {self.step:,} · {' '.join(line['sample'].split())}")

    @property
    def left(self) -> str:
        """Time left, in words."""
        return clock((self.steps - self.step) / self._speed) if self._speed else "?"

    def say(self, text: str) -> None:
        """A line that stays, above the bar."""
        if self._bar is not None:
            self._bar.console.print(f"  {text}", markup=False, soft_wrap=True)
        elif self.shown:
            print(f"  {text}", file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """Seconds as people say them.

    >>> clock(7.0), clock(67.0), clock(4000.0)
    ('7 s', '1 min 07 s', '1 h 06 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def plot(lines: list[dict[str, Any]], path: Path) -> bool:
    """Draw training and validation loss; False where matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    from regard.files import atomically

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)  # no window, whatever the caller's backend is
    axes = figure.add_subplot()
    axes.plot([line["step"] for line in lines], [line["loss"] for line in lines], lw=0.8, alpha=0.7, label="training")
    judged = [line for line in lines if "val_loss" in line]
    if judged:
        axes.plot([x["step"] for x in judged], [x["val_loss"] for x in judged], "o-", ms=3, label="validation")
    axes.set(xlabel="step", ylabel="loss (nats a token)")
    axes.grid(alpha=0.2)
    axes.legend(frameon=False)
    with atomically(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    return True
