"""Effects in one figure: a cell for each head, layers down and heads across; whole layers and pairs as bars."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard.heads.change.effects import Effects
from regard.show.figures import canvas
from regard.show.figures.canvas import signed_scale
from regard.show.figures.cells import no_cells
from regard.show.figures.heads import draw_cells_of_heads, write_numbers
from regard.show.terminal.table import signed
from regard.support.drawing import as_figure

_BAR = 0.22  # inches, the height of a bar


@as_figure.register
def _draw(effects: Effects, ax: Any, width: float | None) -> Any:
    heads = effects.by_head()
    if len(heads) < len(effects):
        return _bars(effects, ax, width)
    values = no_cells(len(effects.measured.heads), max(effects.measured.heads))
    for key, one in heads.items():
        if not math.isnan(one.cost):
            values[key] = one.cost
    scale = signed_scale(float(np.abs(values).max()))
    cells = draw_cells_of_heads(ax, width, values, _title(effects), scale)
    return canvas.fit_height(write_numbers(*cells, values, signed), ax)


def _bars(effects: Effects, ax: Any, width: float | None) -> Any:
    """A bar for each cut, the largest cost first, with its noise where there are several texts."""
    axes = canvas.axes_for(ax, width, canvas.COLUMN)
    order = effects.order()
    chosen = effects.measured.chosen is not None
    noise = [one.logprob_noise if chosen else one.noise for one in order]
    errors = None if any(map(math.isnan, noise)) else noise
    look = {
        "color": signed_scale(1.0)["cmap"](0.75),
        "height": 0.7,
        "error_kw": {"elinewidth": 0.8, "ecolor": canvas.INK},
    }
    axes.barh(range(len(order)), [one.cost for one in order], xerr=errors, **look)
    axes.set_ylim(len(order) - 0.5, -0.5)
    canvas.label_axis(axes.yaxis, [float(i) for i in range(len(order))], [one.name for one in order])
    canvas.name_axes(axes, _title(effects), "", "")
    canvas.open_frame(axes)
    if ax is None:
        axes.figure.set_size_inches(axes.figure.get_figwidth(), min(_BAR * len(order) + 0.5, 9.0))
    return axes


def _title(effects: Effects) -> str:
    if effects.measured.chosen is not None:
        return "drop of the chosen tokens' log-probability (nats)"
    return "growth of the loss per token (nats)"
