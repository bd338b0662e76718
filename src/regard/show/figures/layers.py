"""A statistic over the layers of a model: a dot for each head, and the mean as a line."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.heads.measure.registry import BY_NAME
from regard.show.figures import canvas
from regard.show.figures.colors import WEIGHTS

_HEIGHT = 0.62  # of the width
_ABOVE = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2, "borderaxespad": 0.2, "borderpad": 0}


def draw_layers(values: Any, statistic: str, ax: Any, width: float | None) -> Any:
    """values: (layers, heads), masked where there is no value."""
    axes = canvas.axes_for(ax, width, canvas.COLUMN)
    layers, heads = np.nonzero(~np.ma.getmaskarray(values))
    blue = WEIGHTS[0.5]
    axes.scatter(
        layers, values[layers, heads], s=12, color=blue, alpha=0.45, linewidths=0, label="a head", clip_on=False
    )
    axes.plot(range(len(values)), values.mean(axis=1), color=canvas.INK, linewidth=1, label="mean of the layer")
    canvas.name_axes(axes, "layer", axis_name(statistic))
    axes.spines[["top", "right"]].set_visible(False)
    for line in axes.spines.values():
        line.set(linewidth=0.5, color=canvas.QUIET)
    axes.tick_params(labelsize=canvas.POINTS, length=2, width=0.5, color=canvas.QUIET, labelcolor=canvas.INK)
    axes.xaxis.set_major_locator(canvas.matplotlib("ticker").MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    if BY_NAME[statistic].unit == "weight":
        axes.set_ylim(0, 1)
    axes.legend(frameon=False, fontsize=canvas.POINTS, labelcolor=canvas.INK, handlelength=1.2, **_ABOVE)
    if ax is None:
        axes.figure.set_size_inches(axes.figure.get_figwidth(), _HEIGHT * axes.figure.get_figwidth())
    return axes


def axis_name(statistic: str) -> str:
    """The statistic with its unit: entropy (nats), weight on the previous token.

    >>> axis_name("entropy"), axis_name("previous")
    ('entropy (nats)', 'previous (weight)')
    """
    return f"{statistic} ({BY_NAME[statistic].unit.partition(':')[0]})"
