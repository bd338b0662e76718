"""A poster: every head of a model on one sheet to print, layers down and heads across, with the text as the caption.

A head of a clear role has the hue of that role; lightness is the weight on the scale that all figures have.
"""

import textwrap
from typing import Any

from regard.heads.report.report import Seen
from regard.heads.report.roles import ROLES
from regard.heads.report.views import place
from regard.show.figures import canvas
from regard.show.figures.cells import layer_cells
from regard.show.figures.heads import has_free_corner
from regard.show.palette import POWER
from regard.show.terminal.heads import mark_notes

PAPERS = {"a4": (8.27, 11.69), "a3": (11.69, 16.54), "a2": (16.54, 23.39), "a1": (23.39, 33.11)}  # inches, upright
_SHEET = "#fdfdfb"
_MAP = 96  # rows and columns of a map
_MARGIN = 0.06  # of the sheet's shorter side
_HEAD, _FOOT = 0.105, 0.10  # of its longer side, above and below the maps
_NAME = 1.4  # hundredths of the shorter side for the numbers of layers and heads
_GAP = 0.16  # of a map's width, to the next
_LETTERS = 360  # characters of the text that are shown
_DARK = 0.5  # of a role's colour, where a weight is 1
_TICKS = (0, 0.1, 0.25, 0.5, 1)


def draw_poster(seen: Seen, title: str = "", text: int = 0, paper: str = "a3") -> Any:
    """The poster of one text of a report, as a matplotlib figure; paper: a4, a3, a2 or a1, turned as the heads need."""
    if paper not in PAPERS:
        raise ValueError(f"paper={paper!r} is not known; it is one of {', '.join(PAPERS)}")
    if len(seen.forwards) > 1 or not len(seen):
        raise ValueError(f"a poster shows one forward and {len(seen.forwards)} were seen; choose: seen.forwards[0]")
    text = place(text, seen.sizes()[0][0][0], "text", f"there are {seen.sizes()[0][0][0]}")
    layers = [layer_cells(one, text, _MAP) for one in seen]
    down, across = len(layers), max(map(len, layers))
    wide, high = max(PAPERS[paper], PAPERS[paper][::-1], key=lambda size: _frame(size[0], size[1], down, across)[2])
    figure = canvas.matplotlib().figure(figsize=(wide, high), facecolor=_SHEET)
    sheet = figure.add_axes((0, 0, 1, 1))
    sheet.set(xlim=(0, wide), ylim=(high, 0))
    sheet.axis("off")
    margin, points = _MARGIN * min(wide, high), _points(wide, high)
    left, top, step = _frame(wide, high, down, across)
    name = _NAME * points / 72
    portraits = seen.portraits()
    _draw_maps(sheet, layers, portraits, left, top, step, points)
    _write_heading(sheet, seen, portraits, title, left - name, margin, points)
    _write_caption(sheet, seen, portraits, text, (left - name, wide - left + name, high - margin), points)
    return figure


def _points(wide: float, high: float) -> float:
    """A hundredth of the shorter side."""
    return 72 * min(wide, high) / 100


def _frame(wide: float, high: float, down: int, across: int) -> tuple[float, float, float]:
    """Where the maps begin on a sheet, and how far one is from the next, in inches."""
    margin, name = _MARGIN * min(wide, high), _NAME * _points(wide, high) / 72
    top, bottom = margin + _HEAD * max(wide, high), high - margin - _FOOT * max(wide, high)
    maps = across - _GAP / (1 + _GAP)
    step = min((wide - 2 * margin - name) / maps, (bottom - top - name) / down)
    return (wide - step * maps + name) / 2, top + name + (bottom - top - name - step * down) / 2, step


def _draw_maps(sheet: Any, layers: Any, portraits: Any, left: float, top: float, step: float, points: float) -> None:
    size = step / (1 + _GAP)
    caption = min(1.15 * points, 72 * size / 9)
    for layer, heads in enumerate(layers):
        y = top + layer * step
        number = {"fontsize": 1.2 * points, "color": canvas.QUIET, "va": "center"}
        canvas.write(sheet, left - 0.9 * points / 72, y + size / 2, str(layer), ha="right", **number)
        for head, cells in enumerate(heads):
            x = left + head * step
            if not layer:
                canvas.write(sheet, x + size / 2, y - 0.9 * points / 72, str(head), ha="center", **number)
            role = portraits[layer, head].role
            options = {
                "interpolation": "nearest",
                "aspect": "auto",
                "zorder": 2,
                **_scale(role.name if role.clear else ""),
            }
            sheet.imshow(cells.values, extent=(x, x + size, y + size, y), **options)
            if role.clear:
                color = ROLES[role.name].colors[0]
                free = has_free_corner(cells.values)  # else the caption stands below the map
                where = {"ha": "right", "va": "top", "zorder": 3, "fontsize": caption, "weight": "bold"}
                canvas.write(
                    sheet, x + size, y if free else y + 1.02 * size, ROLES[role.name].short, color=color, **where
                )
    sheet.set(xlim=(0, sheet.figure.get_figwidth()), ylim=(sheet.figure.get_figheight(), 0))


def _scale(role: str) -> dict[str, Any]:
    """The colours of weights, in the hue of a role."""
    if not role:
        return canvas.weight_scale()
    colors = canvas.matplotlib("colors")
    hue = ROLES[role].colors[0]
    anchors = [(0.0, canvas.tint(hue, 0.06)), (0.6, tuple(colors.to_rgb(hue))), (1.0, _darker(hue))]
    cmap = colors.LinearSegmentedColormap.from_list(f"regard {role}", anchors).with_extremes(bad=(0, 0, 0, 0))
    return {"cmap": cmap, "norm": colors.PowerNorm(POWER, vmin=0, vmax=1)}


def _darker(color: str) -> Any:
    return tuple(_DARK * channel for channel in canvas.matplotlib("colors").to_rgb(color))


def _write_heading(sheet: Any, seen: Seen, portraits: Any, title: str, x: float, y: float, points: float) -> None:
    """The title, the sizes, and the roles that there are."""
    _, _, T, S = seen.sizes()[0][0]
    heads = len(portraits)
    size = f"{len(seen)} layers, {heads} heads, reading {T} tokens" if T == S else f"{len(seen)} layers, {heads} heads"
    bold = {"fontsize": 5 * points, "color": canvas.INK, "weight": "bold", "va": "top"}
    canvas.write(sheet, x, y, title or "Attention", **bold)
    canvas.write(sheet, x, y + 6.6 * points / 72, size, fontsize=1.9 * points, color=canvas.QUIET, va="top")
    counts = {name: sum(one.role.name == name for one in portraits.values()) for name in ROLES}
    at, below = x, y + 10.2 * points / 72
    for name, count in counts.items():
        if not count or not ROLES[name].clear:
            continue
        label = f"{name} {count}"
        style = {"fontsize": 1.35 * points, "weight": "bold", "color": ROLES[name].colors[0], "va": "top"}
        canvas.write(sheet, at, below, label, **style)
        at += (canvas.text_width(sheet, label, 1.35 * points) * 1.1 + 2 * points) / 72
    others = sum(count for name, count in counts.items() if not ROLES[name].clear)
    canvas.write(sheet, at, below, f"no clear role {others}", fontsize=1.35 * points, color=canvas.QUIET, va="top")


def _write_caption(
    sheet: Any, seen: Seen, portraits: Any, text: int, box: tuple[float, float, float], points: float
) -> None:
    """The text, how to read a map, and the scale of its colours."""
    left, right, bottom = box
    tokens = seen.tokens[text] if seen.tokens else None
    words = " ".join("".join(tokens.pieces).split()) if tokens is not None else ""
    words = words if len(words) <= _LETTERS else f"{words[:_LETTERS].rsplit(' ', 1)[0]} …"
    scale = (right - left) * 0.26
    columns = int((right - left - scale) * 72 / (0.62 * 1.5 * points)) - 4
    y = bottom - 11 * points / 72
    lines = "\n".join(textwrap.wrap(f"“{words}”", columns)[:4]) if words else ""
    canvas.write(sheet, left, y, lines, fontsize=1.5 * points, color=canvas.INK, va="top", linespacing=1.5)
    how = "A row is a word that looks, a column a word it looks at; a row adds up to 1."
    notes = "   ".join([how, *mark_notes(portraits)])
    canvas.write(sheet, left, bottom, notes, fontsize=1.05 * points, color=canvas.QUIET, va="bottom")
    bar = [[i / 255 for i in range(256)]]
    start, thick = right - scale, 0.9 * points / 72
    options = {**canvas.weight_scale(), "norm": canvas.matplotlib("colors").Normalize(0, 1), "aspect": "auto"}
    sheet.imshow(bar, extent=(start, right, y + thick, y), **options)
    for tick in _TICKS:
        at = start + scale * tick**POWER
        style = {"fontsize": 1.05 * points, "color": canvas.QUIET, "va": "top", "ha": "center"}
        canvas.write(sheet, at, y + 1.5 * thick, f"{tick:g}".removeprefix("0") or "0", **style)
    canvas.write(sheet, right, bottom, "regard", fontsize=1.05 * points, color=canvas.QUIET, va="bottom", ha="right")
    sheet.set(xlim=(0, sheet.figure.get_figwidth()), ylim=(sheet.figure.get_figheight(), 0))
