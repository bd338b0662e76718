"""Times as bars in a PNG file, if matplotlib is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.show.terminal.table import same_digits


@dataclass(frozen=True)
class Panel:
    """One group of bars: a title and (name, milliseconds, is it ours?), fastest first."""

    title: str
    bars: Sequence[tuple[str, float, bool]]


def plot(path: Path, panels: Sequence[Panel], columns: int = 2) -> str | None:
    """Draw the panels into a PNG file. Returns None, or a sentence that says why there is no plot."""
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
        axis.bar_label(drawn, labels=same_digits(times), padding=3, fontsize=8)
        axis.invert_yaxis()
        axis.margins(x=0.18)
        axis.set_title(panel.title, fontsize=9, loc="left")
        axis.set_xlabel("ms, shorter is better", fontsize=8)
        axis.tick_params(labelsize=8, length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return None
