"""Effects in one figure: a cell for each head, layers down and heads across; whole layers and pairs as bars."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard.heads.change.effects import Effects
from regard.show.figures import canvas
from regard.show.figures.cells import no_cells, visible_cells
from regard.show.figures.colors import ink_on, signed_scale
from regard.show.figures.heads import draw_grid_frame
from regard.show.figures.one_head import draw_bar
from regard.support.drawing import as_figure

_CELL = 0.62  # of its width, the height of a cell
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
    axes = canvas.axes_for(ax, width, canvas.PAGE)
    layers, across = values.shape
    grid = np.arange(across + 1), np.arange(layers + 1)
    scale = signed_scale(float(np.abs(values).max()))
    mesh = axes.pcolormesh(*grid, values, edgecolors="white", linewidth=0.8, **scale)
    draw_grid_frame(axes, layers, across, title=_title(effects))
    axes.set_aspect(_CELL)
    draw_bar(axes, mesh, False, "", None)
    wide, high = canvas.size_of(axes)
    texts = {key: _signed(float(values[key])) for key in visible_cells(values)}
    longest = max(canvas.text_width(axes, text) for text in texts.values())
    if longest + 3 <= wide / across and high / layers > canvas.LINE:
        for (layer, head), text in texts.items():
            ink = ink_on(mesh.cmap(mesh.norm(values[layer, head])))
            canvas.write(axes, head + 0.5, layer + 0.5, text, ha="center", va="center_baseline", color=ink)
    if ax is None:
        canvas.fit_height(axes)
    return axes


def _bars(effects: Effects, ax: Any, width: float | None) -> Any:
    """A bar for each cut, the largest cost first, with its noise where there are several texts."""
    axes = canvas.axes_for(ax, width, canvas.COLUMN)
    order = effects.order()
    chosen = effects.measured.chosen is not None
    noise = [one.logprob_noise if chosen else one.noise for one in order]
    errors = None if any(map(math.isnan, noise)) else noise
    scale = signed_scale(1.0)
    look = {"color": scale["cmap"](0.75), "height": 0.7, "error_kw": {"elinewidth": 0.8, "ecolor": canvas.INK}}
    axes.barh(range(len(order)), [one.cost for one in order], xerr=errors, **look)
    axes.set_ylim(len(order) - 0.5, -0.5)
    canvas.label_axis(axes.yaxis, [float(i) for i in range(len(order))], [one.name for one in order])
    canvas.name_axes(axes, _title(effects), "", "")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=canvas.POINTS, length=2, width=0.5, color=canvas.QUIET, labelcolor=canvas.INK)
    if ax is None:
        axes.figure.set_size_inches(axes.figure.get_figwidth(), min(_BAR * len(order) + 0.5, 9.0))
    return axes


def _title(effects: Effects) -> str:
    chosen = "drop of the chosen tokens' log-probability" if effects.measured.chosen is not None else None
    return f"{chosen or 'growth of the loss per token'} (nats)"


def _signed(value: float) -> str:
    text = f"{abs(value):.2f}"
    return text if not float(text) else ("+" if value > 0 else "−") + text
