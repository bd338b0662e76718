"""What all figures share: matplotlib on demand, sizes in inches, text that is never read as a formula, colours, files.

Nothing here changes rcParams or shows a window: fonts come from the caller's settings, sizes are given to each text.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.show.palette import POWER, SIGNED, WEIGHTS, amounts_of_light, palette
from regard.show.terminal.weights import short_label
from regard.support.extras import how_to_install
from regard.support.files import atomically

COLUMN, PAGE = 3.3, 6.9  # inches: one column of a paper, and two
POINTS = 8.0  # of all text
LINE = 9.5  # points from one line to the next
INK, QUIET, RULE = "#1a1c20", "#6b7078", "#e2e3df"
COLORS = 256  # of a scale
_HIGHEST = 9.0  # inches of a figure
_MARGIN = 2 / 72
_LONGEST = 16  # characters of a token's label
# Text is text in the file, so that it can be searched and set in another font; the same picture is the same bytes.
_SAVING = {"svg.fonttype": "none", "svg.hashsalt": "regard", "pdf.fonttype": 42, "ps.fonttype": 42}
_AS_IT_IS = {"parse_math": False, "usetex": False}  # "$" and "_" are characters of tokens, not marks of formulas
_UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def matplotlib(module: str = "pyplot") -> Any:
    """A module of matplotlib, imported now."""
    try:
        return importlib.import_module(f"matplotlib.{module}")
    except ImportError:
        raise ImportError(f"figures need matplotlib, which is not installed; {how_to_install('plot')}") from None


def axes_for(ax: Any, width: float | None, usual: float) -> Any:
    """The given Axes, or one in a new figure of this width, or of the usual one."""
    plt = matplotlib()
    if ax is None:
        wide = usual if width is None else width
        if not 0 < wide < 100:
            raise ValueError(f"width={wide} must be in inches, such as {COLUMN} for a column or {PAGE} for a page")
        figure = plt.figure(figsize=(wide, _HIGHEST), layout="constrained")
        figure.get_layout_engine().set(w_pad=_MARGIN, h_pad=_MARGIN)
        return figure.add_subplot()
    if width is not None:
        raise ValueError(f"width={width} is for a new figure, and the Axes given as ax has its own; leave out one")
    if not isinstance(ax, matplotlib("axes").Axes):
        raise ValueError(f"ax must be a matplotlib Axes, not a {type(ax).__name__}; figure.add_subplot() makes one")
    return ax


def size_of(ax: Any) -> tuple[float, float]:
    """Width and height of an Axes in points, after its figure was laid out."""
    figure = _root(ax)
    figure.draw_without_rendering()
    ax.apply_aspect()
    box = ax.get_window_extent()
    return float(72 * box.width / figure.dpi), float(72 * box.height / figure.dpi)


def fit_height(ax: Any, given: Any) -> Any:
    """The Axes; its figure as high as what it shows, unless the Axes was given."""
    if given is not None:
        return ax
    figure = _root(ax)
    figure.draw_without_rendering()
    box = figure.get_tightbbox()
    figure.set_size_inches(figure.get_figwidth(), min(box.height + 2 * _MARGIN, _HIGHEST))
    figure.draw_without_rendering()
    return ax


def write(ax: Any, x: float, y: float, text: str, **options: Any) -> Any:
    """Text that is shown as it is."""
    return ax.text(x, y, text, **{"fontsize": POINTS, "color": INK, **_AS_IT_IS, **options})


def write_in_cell(ax: Any, cell: tuple[int, int], text: str, color: str, **options: Any) -> None:
    """Text in the middle of a cell, (row, column)."""
    write(ax, cell[1] + 0.5, cell[0] + 0.5, text, ha="center", va="center_baseline", color=color, **options)


def note_below(ax: Any, text: str) -> Any:
    """Quiet text below an Axes, in as many lines as it needs."""
    lines, wide = [""], size_of(ax)[0]
    for part in text.split("   "):
        longer = f"{lines[-1]}   {part}".strip()
        if text_width(ax, longer) <= wide:
            lines[-1] = longer
            continue
        lines.append("")
        for word in part.split():  # one that is longer than a line is broken between its words
            longer = f"{lines[-1]} {word}".strip()
            if not lines[-1] or text_width(ax, longer) <= wide:
                lines[-1] = longer
            else:
                lines.append(word)
    lines = lines if lines[0] else lines[1:]
    offset = matplotlib("transforms").ScaledTranslation(0, -4 / 72, ax.figure.dpi_scale_trans)
    return write(ax, 0.0, 0.0, "\n".join(lines), transform=ax.transAxes + offset, va="top", color=QUIET)


def text_width(ax: Any, text: str, points: float = POINTS) -> float:
    """How wide this text is, in points."""
    figure = _root(ax)
    sample = figure.text(0, 0, text, fontsize=points, **_AS_IT_IS)
    width = sample.get_window_extent(figure.canvas.get_renderer()).width
    sample.remove()
    return float(72 * width / figure.dpi)


def label_axis(axis: Any, places: Sequence[float], labels: Sequence[str], upright: bool = False) -> None:
    """Write these labels along an axis, in full up to 16 characters."""
    shown = [short_label(label, _LONGEST) for label in labels]
    axis.set_ticks(places, shown, fontsize=POINTS, rotation=90 if upright else 0, **_AS_IT_IS)


def name_axes(ax: Any, across: str, down: str, title: str = "") -> None:
    """Names of both axes, and a title at the left."""
    ax.set_xlabel(across, fontsize=POINTS, color=QUIET, labelpad=2)
    ax.set_ylabel(down, fontsize=POINTS, color=QUIET, labelpad=3)
    ax.set_title(title, loc="left", fontsize=POINTS, color=INK, pad=4, **_AS_IT_IS)


def short_number(value: float) -> str:
    """A number in few characters.

    >>> [short_number(value) for value in (0.0, 0.934, 1.0, 1.5, 12.34, 123.4)]
    ['.00', '.93', '1', '1.50', '12.3', '123']
    """
    if value == 1:
        return "1"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}".removeprefix("0")


def bare(ax: Any) -> None:
    """No frame and no tick marks, the horizontal axis on top."""
    ax.spines[:].set_visible(False)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0, labelsize=POINTS, pad=2, colors=INK)


def open_frame(ax: Any) -> None:
    """A frame at the left and below only, with small ticks."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=POINTS, length=2, width=0.5, color=QUIET, labelcolor=INK)


def save_figure(figure: Any, path: str | Path) -> None:
    """Save a figure, or the figure of an Axes, as SVG, PDF or PNG, by the end of the path.

    Text stays text in SVG, and TrueType in PDF; PNG has 300 dots per inch.
    """
    matplotlib()
    root, kind = _root(figure), Path(path).suffix.removeprefix(".").lower()
    known = root.canvas.get_supported_filetypes()
    if kind not in known:
        raise ValueError(f"{path} must end in .svg, .pdf, .png or another format of matplotlib: {', '.join(known)}")
    with importlib.import_module("matplotlib").rc_context(_SAVING), atomically(path) as temporary:
        root.savefig(temporary, format=kind, dpi=300, metadata=_UNDATED.get(kind))


def _root(thing: Any) -> Any:
    """The figure at the top, of an Axes, a figure or a part of one."""
    figure = getattr(thing, "figure", None)
    if figure is None or not hasattr(figure, "canvas"):
        raise ValueError(f"a figure or an Axes is saved, not a {type(thing).__name__}")
    return figure.canvas.figure


def weight_scale() -> dict[str, Any]:
    """Colours and norm for weights between 0 and 1; a masked cell has no colour."""
    return {"cmap": _map("weights", WEIGHTS), "norm": matplotlib("colors").PowerNorm(POWER, vmin=0, vmax=1)}


def amount_scale(most: float) -> dict[str, Any]:
    """The same colours for other amounts, from 0 to `most` in even steps."""
    return {"cmap": _map("weights", WEIGHTS), "norm": matplotlib("colors").Normalize(0, most or 1)}


def signed_scale(most: float) -> dict[str, Any]:
    """Colours and norm for numbers between −most and most."""
    both = ((lambda x: np.sign(x) * np.abs(x) ** POWER), (lambda x: np.sign(x) * np.abs(x) ** (1 / POWER)))
    return {"cmap": _map("signed", SIGNED), "norm": matplotlib("colors").FuncNorm(both, -(most or 1), most or 1)}


def ink_on(color: Any) -> str:
    """Black or white, whichever is easier to read on this colour."""
    return "#000000" if float(amounts_of_light(np.asarray(color)[:3]) @ (0.2126, 0.7152, 0.0722)) > 0.179 else "#ffffff"


def tint(color: str, share: float) -> Any:
    """So much of this colour on white."""
    return 1 - share * (1 - np.array(matplotlib("colors").to_rgb(color)))


def _map(name: str, anchors: dict[float, str]) -> Any:
    colors = matplotlib("colors").ListedColormap(palette(anchors, COLORS), f"regard {name}")
    return colors.with_extremes(bad=(0, 0, 0, 0))
