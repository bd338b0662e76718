"""All heads of a report in one figure, layers down and heads across: as small maps, or as cells coloured by a number."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from regard.heads.measure.registry import AVERAGED, BY_NAME
from regard.heads.report.compare import HeadSummary
from regard.heads.report.report import Seen
from regard.heads.report.roles import NAMES
from regard.heads.report.views import place
from regard.show.figures import canvas
from regard.show.figures.cells import layer_cells, no_cells, visible_cells
from regard.show.figures.colors import ROLES, amount_scale, ink_on, tint, weight_scale
from regard.show.figures.layers import axis_name, draw_layers
from regard.show.figures.one_head import TICKS, draw_bar
from regard.show.terminal.marks import MARK, mark_notes, marked_layers
from regard.support.drawing import as_figure

_MAP = 64  # rows and columns of a small map
_GAP = 0.06  # of a small map, around it
_CELL = 0.62  # of its width, the height of a cell
_TINT = 0.3  # of a role's colour in its cells
_SMALL = 7.0  # points of a caption
_FREE = 0.62  # of a small map's width, free for its caption
_CODES = {name: name[:2].capitalize() for name in NAMES}  # where the names of roles do not fit


@as_figure.register
def _draw(
    seen: Seen, by: str | None, ax: Any, width: float | None, text: int | None = None, over: str | None = None
) -> Any:
    if not len(seen):
        raise ValueError("nothing was seen yet, so there is nothing to plot; run the model inside the watch")
    if by is not None and text is not None:
        raise ValueError(f"by={by!r} plots means over all texts, so text={text} does not apply; leave out one of them")
    if by is None:
        return _maps(seen, ax, text or 0, width)
    portraits = seen.portraits()
    if over is None and by == "role":
        return _roles(portraits, ax, width)
    values = means(portraits, by, () if over else ("role",))
    if over is not None:
        axes = draw_layers(values, by, ax, width)
        if notes := mark_notes(portraits):
            axes.set_xlabel("\n".join(["layer", *notes]))
        return axes
    return _grid(values, by, ax, width, portraits)


def means(portraits: Mapping[tuple[int, int], HeadSummary], by: str, others: Sequence[str] = ()) -> Any:
    """(layers, heads): the mean of a statistic in each head, masked where there is no head or no value."""
    canvas.refuse_unknown("the statistic", by, (*AVERAGED, *others))
    values = no_cells(1 + max(layer for layer, _ in portraits), 1 + max(head for _, head in portraits))
    for key, one in portraits.items():
        if not math.isnan(mean := one.means.get(by, math.nan)):
            values[key] = mean
    if values.mask.all():
        repeats = ", and of tokens that occur twice" if BY_NAME[by].needs_tokens else ""
        raise ValueError(f"{by} has no value in any head; it was not collected, or the text has no row for it{repeats}")
    return values


def _maps(seen: Seen, ax: Any, text: int, width: float | None) -> Any:
    """A small map of every head, with its number and role."""
    if len(seen.forwards) > 1:
        raise ValueError(f"{len(seen.forwards)} forwards were seen; choose one: seen.forwards[0].plot()")
    layers = [
        layer_cells(one, place(text, one.record.sizes[0], "text", f"there are {one.record.sizes[0]}"), _MAP)
        for one in seen
    ]
    axes = canvas.axes_for(ax, width, canvas.PAGE)
    across = max(map(len, layers))
    draw_grid_frame(axes, len(layers), across)
    axes.set_aspect("equal")
    image = axes.imshow(no_cells(1, 1), extent=(0, 0, 0, 0), **weight_scale())
    draw_bar(axes, image, inside=False)
    image.remove()
    wide = canvas.size_of(axes)[0] / across
    roles = {(layer, head): role for layer, view in enumerate(seen) for head, role in enumerate(view.roles)}
    causal = all(_has_free_corner(one.values) for cells in layers for one in cells)
    names = max(canvas.text_width(axes, _caption(key, role.name, causal), _SMALL) for key, role in roles.items())
    fit = names < wide * (_FREE if causal else 1)
    top = 0.0 if causal else 1.3 * _SMALL / wide  # the height of a caption above its map
    for layer, cells in enumerate(layers):
        for head, one in enumerate(cells):
            low = layer * (1 + top) + top
            edges = (head + _GAP, head + 1 - _GAP, low + 1 - _GAP, low + _GAP)
            axes.imshow(one.values, extent=edges, interpolation="nearest", **weight_scale())
            role = roles[layer, head]
            caption = _caption((layer, head), role.name, causal) if fit else _CODES[role.name] if role.clear else ""
            corner = {"ha": "right", "va": "top"} if causal else {"ha": "left", "va": "bottom"}
            x, y = (edges[1], edges[3]) if causal else (edges[0], edges[3] - 1 / wide)
            look = {"fontsize": _SMALL, "color": canvas.INK if role.clear else canvas.QUIET, "linespacing": 1.1}
            canvas.write(axes, x, y, caption, **look, **corner)
    portraits = seen.portraits()
    draw_grid_frame(axes, len(layers), across, top, marked=marked_layers(portraits))
    _note(axes, "" if fit else _legend(role.name for role in roles.values() if role.clear), portraits)
    if ax is None:
        canvas.fit_height(axes)
    return axes


def _has_free_corner(values: Any) -> bool:
    """Is the upper right of a map empty, as in causal attention?"""
    rows, cols = values.shape
    return bool(rows > 1 and np.ma.getmaskarray(values)[: max(1, rows // 3), cols - max(1, cols // 2) :].all())


def _caption(key: tuple[int, int], role: str, causal: bool) -> str:
    """Number and role of a head, in two lines where it is in the corner of its map."""
    return f"{key[0]}.{key[1]}{chr(10) if causal else ' '}{short_role(role)}"


def _legend(roles: Iterable[str]) -> str:
    """What the two letters of these roles stand for."""
    given = set(roles)
    return "   ".join(f"{_CODES[name]} {name}" for name in NAMES if name in given)


def _note(ax: Any, legend: str, portraits: Mapping[tuple[int, int], HeadSummary]) -> None:
    """The legend, and what is assumed or unknown, below the figure."""
    if text := "   ".join(filter(None, [legend, *mark_notes(portraits)])):
        canvas.note(ax, text)


def draw_grid_frame(
    ax: Any, layers: int, heads: int, top: float = 0.0, title: str = "", marked: Collection[int] = ()
) -> None:
    """Layers down, heads across; top: what a row has above its cells, for cells of height 1; marked: layers with a mark."""
    ax.set(xlim=(0, heads), ylim=(layers * (1 + top), 0))
    canvas.bare(ax)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    canvas.label_axis(ax.xaxis, [i + 0.5 for i in range(heads)], [str(i) for i in range(heads)])
    canvas.label_axis(
        ax.yaxis,
        [i * (1 + top) + top + 0.5 for i in range(layers)],
        [f"{i}{MARK if i in marked else ''}" for i in range(layers)],
    )
    canvas.name_axes(ax, "head", "layer", title)
    ax.tick_params(length=0)


def short_role(role: str) -> str:
    """The name of a role in one word.

    >>> short_role("previous token"), short_role("self")
    ('previous', 'self')
    """
    return role.removesuffix(" token")


def _grid(values: Any, by: str, ax: Any, width: float | None, portraits: Mapping[tuple[int, int], HeadSummary]) -> Any:
    """A cell for each head, coloured by the mean of a statistic."""
    axes = canvas.axes_for(ax, width, canvas.PAGE)
    layers, heads = values.shape
    is_weight = BY_NAME[by].unit == "weight"
    scale = weight_scale() if is_weight else amount_scale(float(values.max()))
    mesh = axes.pcolormesh(
        np.arange(heads + 1), np.arange(layers + 1), values, edgecolors="white", linewidth=0.8, **scale
    )
    draw_grid_frame(axes, layers, heads, title=f"mean {axis_name(by)}", marked=marked_layers(portraits))
    axes.set_aspect(_CELL)
    draw_bar(axes, mesh, False, "", TICKS if is_weight else None)
    wide, high = canvas.size_of(axes)
    texts = {key: canvas.number(float(values[key])) for key in visible_cells(values)}
    if (
        max(canvas.text_width(axes, text) for text in texts.values()) + 3 <= wide / heads
        and high / layers > canvas.LINE
    ):
        for (layer, head), text in texts.items():
            ink = ink_on(mesh.cmap(mesh.norm(values[layer, head])))
            canvas.write(axes, head + 0.5, layer + 0.5, text, ha="center", va="center_baseline", color=ink)
    _note(axes, "", portraits)
    if ax is None:
        canvas.fit_height(axes)
    return axes


def _roles(portraits: Mapping[tuple[int, int], HeadSummary], ax: Any, width: float | None) -> Any:
    """A cell for each head, coloured by its role, with the name or two letters of it."""
    axes = canvas.axes_for(ax, width, canvas.PAGE)
    layers, heads = (1 + max(key[axis] for key in portraits) for axis in (0, 1))
    roles = {key: one.role.name for key, one in portraits.items()}
    numbers = no_cells(layers, heads)
    for key, role in roles.items():
        numbers[key] = NAMES.index(role)
    colors = [tint(ROLES[name], _TINT if name != "mixed" else _TINT / 4) for name in NAMES]
    scale = {"cmap": canvas.matplotlib("colors").ListedColormap(colors), "vmin": -0.5, "vmax": len(NAMES) - 0.5}
    axes.pcolormesh(np.arange(heads + 1), np.arange(layers + 1), numbers, edgecolors="white", linewidth=0.8, **scale)
    draw_grid_frame(axes, layers, heads, marked=marked_layers(portraits))
    axes.set_aspect(_CELL)
    wide = canvas.size_of(axes)[0] / heads
    fit = max(canvas.text_width(axes, short_role(role)) for role in roles.values()) + 3 <= wide
    for (layer, head), role in roles.items():
        color = canvas.QUIET if role == "mixed" else canvas.INK
        text = short_role(role) if fit else _CODES[role]
        canvas.write(axes, head + 0.5, layer + 0.5, text, ha="center", va="center_baseline", color=color)
    _note(axes, "" if fit else _legend(roles.values()), portraits)
    if ax is None:
        canvas.fit_height(axes)
    return axes
