"""The loss of a training run as a plot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.support.files import atomically


def plot_loss(lines: Sequence[dict[str, Any]], path: Path | str) -> bool:
    """Plot training and validation loss from the lines of log.jsonl into a PNG; False without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)  # no window, whatever the caller's backend is
    axes = figure.add_subplot()
    axes.plot([line["step"] for line in lines], [line["loss"] for line in lines], lw=0.8, alpha=0.7, label="training")
    evaluated = [line for line in lines if "val_loss" in line]
    if evaluated:
        axes.plot([x["step"] for x in evaluated], [x["val_loss"] for x in evaluated], "o-", ms=3, label="validation")
    axes.set(xlabel="step", ylabel="loss (nats per token)")
    axes.grid(alpha=0.2)
    axes.legend(frameon=False)
    with atomically(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    return True
