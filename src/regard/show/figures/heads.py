"""All heads of a report in one figure, layers down and heads across: as small maps, or as cells coloured by a number.

Or over the layers: a dot for each head, and the mean as a line. Effects of cuts are cells, or bars where a cut is not a
single head.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from regard.heads.change.effects import Effects
from regard.heads.measure.registry import AVERAGED, BY_NAME
from regard.heads.report.report import Seen
from regard.heads.report.roles import ROLES
from regard.heads.report.views import place
from regard.show.figures import canvas
from regard.show.figures.canvas import amount_scale, ink_on, signed_scale, tint, weight_scale
from regard.show.figures.cells import layer_cells, no_cells, unmasked_cells
from regard.show.figures.one_head import TICKS, draw_bar
from regard.show.palette import WEIGHTS
from regard.show.terminal.heads import MARK, Heads, mark_notes, marked_layers
from regard.show.terminal.table import signed
from regard.support.drawing import as_figure

_MAP = 64  # rows and columns of a small map
_GAP = 0.06  # of a small map, around it
_CELL = 0.62  # of its width, the height of a cell
_TINT = 0.3  # of a role's colour in its cells
_SMALL = 7.0  # points of a caption
_FREE = 0.62  # of a small map's width, free for its caption
_OVER_LAYERS = 0.62  # of its width, the height of a figure over layers
_BAR = 0.22  # inches, the height of a bar
_LEGEND = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2, "borderaxespad": 0.2, "borderpad": 0}


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
        return _over_layers(values, by, ax, width, portraits)
    is_weight = BY_NAME[by].unit == "weight"
    scale = weight_scale() if is_weight else amount_scale(float(values.max()))
    cells = draw_cells_of_heads(ax, width, values, f"mean {_axis_name(by)}", scale, marked_layers(portraits))
    return _noted(write_numbers(*cells, values, canvas.short_number, TICKS if is_weight else None), "", portraits, ax)


def means(portraits: Heads, by: str, others: Sequence[str] = ()) -> Any:
    """(layers, heads): the mean of a statistic in each head, masked where there is no head or no value."""
    if by not in (known := (*AVERAGED, *others)):
        raise ValueError(f"the statistic is {by!r}; it must be one of {', '.join(known)}")
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
    layers = []
    for one in seen:
        texts = one.record.sizes[0]
        layers.append(layer_cells(one, place(text, texts, "text", f"there are {texts}"), _MAP))
    axes = canvas.axes_for(ax, width, canvas.PAGE)
    across = max(map(len, layers))
    draw_grid_frame(axes, len(layers), across)
    axes.set_aspect("equal")
    image = axes.imshow(no_cells(1, 1), extent=(0, 0, 0, 0), **weight_scale())
    draw_bar(axes, image, inside=False)
    image.remove()
    wide = canvas.size_of(axes)[0] / across
    portraits = seen.portraits()
    causal = all(has_free_corner(one.values) for cells in layers for one in cells)
    captions, fit = _captions(axes, portraits, causal, wide * (_FREE if causal else 1))
    top = 0.0 if causal else 1.3 * _SMALL / wide  # the height of a caption above its map
    for (layer, head), caption in captions.items():
        low = layer * (1 + top) + top
        edges = (head + _GAP, head + 1 - _GAP, low + 1 - _GAP, low + _GAP)
        axes.imshow(layers[layer][head].values, extent=edges, interpolation="nearest", **weight_scale())
        corner = {"ha": "right", "va": "top"} if causal else {"ha": "left", "va": "bottom"}
        x, y = (edges[1], edges[3]) if causal else (edges[0], edges[3] - 1 / wide)
        color = canvas.INK if portraits[layer, head].role.clear else canvas.QUIET
        canvas.write(axes, x, y, caption, fontsize=_SMALL, color=color, linespacing=1.1, **corner)
    draw_grid_frame(axes, len(layers), across, top, marked=marked_layers(portraits))
    clear = [one.role.name for one in portraits.values() if one.role.clear]
    return _noted(axes, "" if fit else _legend(clear), portraits, ax)


def has_free_corner(values: Any) -> bool:
    """Is the upper right of a map empty, as in causal attention?"""
    rows, cols = values.shape
    return bool(rows > 1 and np.ma.getmaskarray(values)[: max(1, rows // 3), cols - max(1, cols // 2) :].all())


def _captions(ax: Any, portraits: Heads, causal: bool, wide: float) -> tuple[dict[tuple[int, int], str], bool]:
    """Number and role of each head where all fit the width, in two lines in the corner of a map; else letters."""
    between = "\n" if causal else " "
    full = {key: "{}.{}".format(*key) + between + ROLES[one.role.name].short for key, one in portraits.items()}
    if max(canvas.text_width(ax, caption, _SMALL) for caption in full.values()) < wide:
        return full, True
    return {key: _letters(one.role.name) if one.role.clear else "" for key, one in portraits.items()}, False


def _letters(role: str) -> str:
    """Where the names of roles do not fit."""
    return role[:2].capitalize()


def _legend(roles: Iterable[str]) -> str:
    """What the letters of these roles stand for."""
    given = set(roles)
    return "   ".join(f"{_letters(name)} {name}" for name in ROLES if name in given)


def _noted(ax: Any, legend: str, portraits: Heads, given: Any) -> Any:
    """The figure with a legend below it, and what is assumed or unknown."""
    if text := "   ".join(filter(None, [legend, *mark_notes(portraits)])):
        canvas.note_below(ax, text)
    return canvas.fit_height(ax, given)


def draw_grid_frame(
    ax: Any, layers: int, heads: int, top: float = 0.0, title: str = "", marked: Collection[int] = ()
) -> None:
    """Layers down, heads across; top: what a row has above its cells, in heights of a cell; marked: with a mark."""
    ax.set(xlim=(0, heads), ylim=(layers * (1 + top), 0))
    canvas.bare(ax)
    canvas.label_axis(ax.xaxis, [i + 0.5 for i in range(heads)], [str(i) for i in range(heads)])
    names = [f"{i}{MARK if i in marked else ''}" for i in range(layers)]
    canvas.label_axis(ax.yaxis, [i * (1 + top) + top + 0.5 for i in range(layers)], names)
    canvas.name_axes(ax, "head", "layer", title)


def draw_cells_of_heads(
    ax: Any, width: float | None, values: Any, title: str, scale: Mapping[str, Any], marked: Collection[int] = ()
) -> tuple[Any, Any]:
    """A cell for each head, coloured by its value: the Axes, and what has the colours."""
    axes = canvas.axes_for(ax, width, canvas.PAGE)
    layers, heads = values.shape
    edges = np.arange(heads + 1), np.arange(layers + 1)
    mesh = axes.pcolormesh(*edges, values, edgecolors="white", linewidth=0.8, **scale)
    draw_grid_frame(axes, layers, heads, title=title, marked=marked)
    axes.set_aspect(_CELL)
    return axes, mesh


def write_numbers(
    axes: Any, mesh: Any, values: Any, text: Callable[[float], str], ticks: Sequence[float] | None = None
) -> Any:
    """A scale of the colours, and the numbers in the cells of heads where all of them fit."""
    draw_bar(axes, mesh, False, "", ticks)
    wide, high = canvas.size_of(axes)
    layers, heads = values.shape
    texts = {key: text(float(values[key])) for key in unmasked_cells(values)}
    longest = max(canvas.text_width(axes, one) for one in texts.values())
    if longest + 3 <= wide / heads and high / layers > canvas.LINE:
        for key, one in texts.items():
            canvas.write_in_cell(axes, key, one, ink_on(mesh.cmap(mesh.norm(values[key]))))
    return axes


def _roles(portraits: Heads, ax: Any, width: float | None) -> Any:
    """A cell for each head, coloured by its role, with the name or two letters of it."""
    layers, heads = (1 + max(key[axis] for key in portraits) for axis in (0, 1))
    roles = {key: one.role.name for key, one in portraits.items()}
    names = list(ROLES)
    numbers = no_cells(layers, heads)
    for key, role in roles.items():
        numbers[key] = names.index(role)
    colors = [tint(one.colors[0], _TINT if one.name != "mixed" else _TINT / 4) for one in ROLES.values()]
    scale = {"cmap": canvas.matplotlib("colors").ListedColormap(colors), "vmin": -0.5, "vmax": len(names) - 0.5}
    axes, _ = draw_cells_of_heads(ax, width, numbers, "", scale, marked_layers(portraits))
    wide = canvas.size_of(axes)[0] / heads
    fit = max(canvas.text_width(axes, ROLES[role].short) for role in roles.values()) + 3 <= wide
    for key, role in roles.items():
        color = canvas.QUIET if role == "mixed" else canvas.INK
        canvas.write_in_cell(axes, key, ROLES[role].short if fit else _letters(role), color)
    return _noted(axes, "" if fit else _legend(roles.values()), portraits, ax)


def _over_layers(values: Any, by: str, ax: Any, width: float | None, portraits: Heads) -> Any:
    axes = canvas.axes_for(ax, width, canvas.COLUMN)
    layers, heads = np.nonzero(~np.ma.getmaskarray(values))
    dots = {"s": 12, "color": WEIGHTS[0.5], "alpha": 0.45, "linewidths": 0, "clip_on": False}
    axes.scatter(layers, values[layers, heads], label="a head", **dots)
    axes.plot(range(len(values)), values.mean(axis=1), color=canvas.INK, linewidth=1, label="mean of the layer")
    canvas.name_axes(axes, "\n".join(["layer", *mark_notes(portraits)]), _axis_name(by))
    canvas.open_frame(axes)
    axes.spines[:].set(linewidth=0.5, color=canvas.QUIET)
    axes.xaxis.set_major_locator(canvas.matplotlib("ticker").MaxNLocator(integer=True))
    axes.set_ylim(0, 1 if BY_NAME[by].unit == "weight" else None)
    axes.legend(frameon=False, fontsize=canvas.POINTS, labelcolor=canvas.INK, handlelength=1.2, **_LEGEND)
    if ax is None:
        axes.figure.set_size_inches(axes.figure.get_figwidth(), _OVER_LAYERS * axes.figure.get_figwidth())
    return axes


def _axis_name(statistic: str) -> str:
    """The statistic with its unit: entropy (nats), previous (weight)."""
    return f"{statistic} ({BY_NAME[statistic].unit.partition(':')[0]})"


@as_figure.register
def _draw_effects(effects: Effects, ax: Any, width: float | None) -> Any:
    heads = effects.by_head()
    if len(heads) < len(effects):
        return _bars(effects, ax, width)
    values = no_cells(len(effects.measured.heads), max(effects.measured.heads))
    for key, one in heads.items():
        if not math.isnan(one.cost):
            values[key] = one.cost
    scale = signed_scale(float(np.abs(values).max()))
    cells = draw_cells_of_heads(ax, width, values, _what(effects), scale)
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
    canvas.name_axes(axes, _what(effects), "", "")
    canvas.open_frame(axes)
    if ax is None:
        axes.figure.set_size_inches(axes.figure.get_figwidth(), min(_BAR * len(order) + 0.5, 9.0))
    return axes


def _what(effects: Effects) -> str:
    if effects.measured.chosen is not None:
        return "drop of the chosen tokens' log-probability (nats)"
    return "growth of the loss per token (nats)"
