"""Where, when and with what: the machine in words, progress on stderr, tables, JSON and a plot.

Nothing here needs more than torch: rich and matplotlib are used where they are installed.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


def say(text: str) -> None:
    """To stdout, at once, so that it keeps its place among the lines on stderr."""
    print(text, flush=True)


def wrap(note: str) -> list[str]:
    """A note below a table, 80 columns wide."""
    return textwrap.wrap(note, 78, initial_indent="  ", subsequent_indent="    ")


def reason(error: Exception) -> str:
    r"""Why a peer failed, in one short line.

    >>> reason(ValueError("too long\nby far"))
    'ValueError: too long'
    """
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first.strip()}"[:160]


def machine(command: str = "") -> dict[str, Any]:
    """What a figure needs beside it to mean anything: hardware, versions, commit and command.

    >>> sorted(machine())[:4]
    ['command', 'commit', 'cores', 'cpu']
    """
    cuda = torch.cuda.is_available()
    return {
        "command": command,
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "regard", "transformers", "x-transformers", "triton")},
    }


def machine_lines(about: dict[str, Any]) -> list[str]:
    """The machine in a few lines of at most 80 columns."""
    versions = [f"{name} {version}" for name, version in about["versions"].items() if version]
    lines = [f"  {about['cpu']}, {about['cores']} cores, {about['threads']} threads"]
    if about["gpu"]:
        lines.append(f"  {about['gpu']}, CUDA {about['cuda']}, cuDNN {about['cudnn']}")
    line = f"  Python {about['python']}"
    for version in versions:
        if len(line) + len(version) + 2 > 80:
            lines.append(line + ",")
            line = f"  {version}"
        else:
            line += f", {version}"
    lines.append(line)
    if about["commit"]:
        lines.append(f"  commit {about['commit']}")
    return [line[:80] for line in lines]


class Progress:
    """What is going on, on stderr: a bar in a terminal that has rich, otherwise a line for each stage.

    >>> with Progress() as progress:
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
            # Tables go to stdout; rich must not take them over.
            self._bars = Bars(console=Console(stderr=True), transient=True, redirect_stdout=False)

    def __enter__(self) -> Progress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def stage(self, text: str) -> None:
        """Say what comes now."""
        if self._bars is None:
            print(f"  {text} ...", file=sys.stderr, flush=True)
            return
        if self._bar is not None:
            self._bars.remove_task(self._bar)
        self._bar = self._bars.add_task(text, total=None)

    def tick(self, done: int, total: int) -> None:
        """Say how much of the stage is done."""
        if self._bars is not None and self._bar is not None:
            self._bars.update(self._bar, completed=done, total=total)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], marked: int | None = None, words: int = 1) -> list[str]:
    """Aligned lines: the first `words` columns are words, the others numbers; the row `marked` gets an arrow.

    >>> print(*table(["who", "ms"], [["we", "1.0"], ["they", "12.5"]], marked=0), sep="|")
      who     ms|→ we     1.0|  they  12.5
    """
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str], mark: str) -> str:
        parts = [c.ljust(w) if i < words else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return (mark + " " + "  ".join(parts)).rstrip()

    return [line(head, " "), *(line(row, "→" if i == marked else " ") for i, row in enumerate(rows))]


def column(values: Sequence[float | None]) -> list[str]:
    """Numbers of one column with the same number of digits after the point: enough for the smallest to be told apart.

    >>> column([0.5, 12.0, None])
    ['0.500', '12.000', '-']
    """
    there = [v for v in values if v is not None]
    least, most = min(there, default=1.0), max(there, default=1.0)
    digits = 1 if least >= 100 or most >= 9999 else 2 if least >= 10 or most >= 999 else 3
    return ["-" if v is None else f"{v:.{digits}f}" for v in values]


def write_json(path: Path, data: object) -> None:
    """Write all of it or nothing: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=2, ensure_ascii=False, allow_nan=False)
            file.write("\n")
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@dataclass(frozen=True)
class Panel:
    """One group of bars: a title and (name, milliseconds, ours?) from fastest to slowest."""

    title: str
    bars: Sequence[tuple[str, float, bool]]


def plot(path: Path, panels: Sequence[Panel], columns: int = 2) -> str | None:
    """Draw the panels as bars into a PNG; a sentence where that cannot be done, else None."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "no plot: matplotlib is not installed; try pip install 'regard[plot]'"
    if not panels:
        return "no plot: nothing was measured"
    rows = -(-len(panels) // columns)
    tallest = max(len(panel.bars) for panel in panels)
    figure = Figure(figsize=(5.5 * columns, rows * (1.0 + 0.24 * tallest)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    for panel, axis in zip(panels, axes.flat, strict=False):
        names = [name for name, _, _ in panel.bars]
        times = [ms for _, ms, _ in panel.bars]
        drawn = axis.barh(
            names, times, color=["#2f6db3" if ours else "#c9ccd1" for _, _, ours in panel.bars], height=0.7
        )
        axis.bar_label(drawn, labels=column(times), padding=3, fontsize=8)
        axis.invert_yaxis()
        axis.margins(x=0.18)
        axis.set_title(panel.title, fontsize=9, loc="left")
        axis.set_xlabel("ms, shorter is better", fontsize=8)
        axis.tick_params(labelsize=8, length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return None


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        if names:
            return names[0]
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit that this package was run from, or None where it is not a checkout."""
    here = Path(__file__).resolve().parent.parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # a package installed inside another checkout is not of it
        return git("rev-parse", "--short=12", "HEAD") + (
            " + changes" if git("status", "--porcelain", "--", ".") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None
