"""One head as a heat map: a row for each query, a column for each key, no cell where the mask hides the key.

And one token in the heads that say most about it, a row for each head; and any weights that you have computed.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from regard.heads.report.listings import TokenInHeads
from regard.heads.report.views import Head, Index, place
from regard.show.figures import canvas
from regard.show.figures.canvas import ink_on, weight_scale
from regard.show.figures.cells import LONGEST, Cells, head_cells, unmasked_cells
from regard.show.terminal.heads import MARK
from regard.support.drawing import as_figure
from regard.support.tokens import TextTokens

TICKS = (0.0, 0.02, 0.1, 0.25, 0.5, 1.0)
_UPRIGHT = 15  # keys from which their labels are upright
_NUMBERS = 17  # points of a cell from which it has its number
_VECTOR = 64  # rows or columns up to which cells are drawn as shapes; more are pixels in SVG and PDF
_HEADS = 16  # of a figure of one token
_BAR = (0.07, 1.2)  # inches
_AROUND_BAR = (0.5, 1.5)  # inches that the bar needs with its ticks and title


@as_figure.register
def _draw(head: Head, ax: Any, text: int, rows: Index, cols: Index, width: float | None) -> Any:
    text = place(text, head.record.sizes[0], "text", f"there are {head.record.sizes[0]}")
    cells = head_cells(head, text, rows, cols)
    axes = canvas.axes_for(ax, width, canvas.COLUMN)
    mesh = draw_cells(axes, cells)
    canvas.name_axes(axes, "key", "query", f"{head.layer}.{head.head}{MARK if head.marks else ''} {head.role.name}")
    queries, keys = (_labels(*side, text) for side in ((head.query_tokens, cells.rows), (head.key_tokens, cells.cols)))
    label = partial(_label_pooled, axes, cells) if cells.pooled else partial(_label, axes, queries, keys)
    label()
    is_free = _corner_is_free(axes, cells)
    draw_bar(axes, mesh, is_free)
    if not is_free:  # the map is smaller now
        label()
    if not cells.pooled:
        _write_numbers(axes, mesh, cells)
    if head.marks:
        canvas.note_below(axes, "   ".join(f"{MARK} {mark}" for mark in head.marks))
    return canvas.fit_height(axes, ax)


@as_figure.register
def _draw_token(token: TokenInHeads, ax: Any, width: float | None) -> Any:
    """Where one token looks: a row for each of the heads that say most, a column for each key."""
    shown = token[:_HEADS]
    keys = len(shown[0].weights)
    if keys > LONGEST:
        raise ValueError(f"at most {LONGEST} keys are drawn, and {token.name} has {keys}; watch a shorter text")
    if other := [one.head for one in shown if len(one.weights) != keys]:
        at = f"{other[0].layer}.{other[0].head}"
        raise ValueError(f"head {at} has other keys than the first; choose layers of one text: seen.at(…, layers=[…])")
    seen = [one.head.visible([token.position])[token.text][0].cpu().numpy() for one in shown]
    weights = np.stack([one.weights.float().cpu().numpy() for one in shown])
    cells = Cells(
        np.ma.array(weights, mask=~np.stack(seen)), list(range(len(shown))), list(range(keys)), False, 1, keys
    )
    axes = canvas.axes_for(ax, width, canvas.COLUMN)
    canvas.name_axes(axes, "key", "head", f"where {token.name} looks")
    heads = [f"{one.head.layer}.{one.head.head} {one.head.role.name}" for one in shown]
    _draw_labelled(axes, cells, heads, _labels(shown[0].head.key_tokens, cells.cols, token.text))
    return canvas.fit_height(axes, ax)


def draw_weights(
    weights: Float[torch.Tensor, "T S"],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    *,
    mask: Bool[torch.Tensor, "T S"] | None = None,
    ax: Any = None,
    width: float | None = None,
) -> Any:
    """Draw weights of your own, with the words at both sides; returns the Axes.

    mask: True = may attend; what it hides has no cell.

    >>> ax = draw_weights(torch.eye(2), ["the", "cat"], ["the", "cat"], "every word looks at itself")
    """
    if weights.shape != (len(rows), len(columns)):
        raise ValueError(
            f"weights has shape {tuple(weights.shape)}, for {len(rows)} rows and {len(columns)} columns; "
            "give one word for each query and each key, and the weights of one head and one text"
        )
    if max(weights.shape) > LONGEST or 0 in weights.shape:
        raise ValueError(f"1 to {LONGEST} rows and columns are drawn, not {weights.shape[0]} × {weights.shape[1]}")
    if mask is not None and mask.shape != weights.shape:
        raise ValueError(f"mask has shape {tuple(mask.shape)} but weights here are {tuple(weights.shape)}")
    hidden = False if mask is None else ~mask.cpu().numpy()
    values = np.ma.array(weights.detach().float().cpu().numpy(), mask=hidden)
    cells = Cells(values, list(range(len(rows))), list(range(len(columns))), False, len(rows), len(columns))
    axes = canvas.axes_for(ax, width, canvas.COLUMN)
    canvas.name_axes(axes, "key", "query", title)
    _draw_labelled(axes, cells, rows, columns)
    return canvas.fit_height(axes, ax)


def _draw_labelled(ax: Any, cells: Cells, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Cells with labels, a scale and their numbers."""
    mesh = draw_cells(ax, cells)
    _label(ax, rows, columns)
    draw_bar(ax, mesh, _corner_is_free(ax, cells))
    _write_numbers(ax, mesh, cells)


def draw_cells(ax: Any, cells: Cells) -> Any:
    """The cells as squares, the first row on top."""
    count, across = cells.values.shape
    edges = [np.arange(across + 1), np.arange(count + 1)]
    if cells.pooled:  # in tokens, so that the axes are positions
        edges = [np.array([*cells.cols, cells.keys]), np.array([*cells.rows, cells.queries])]
    small = max(count, across) <= _VECTOR
    lines = {"edgecolors": "white", "linewidth": 0.4} if small else {"rasterized": True}
    mesh = ax.pcolormesh(*edges, cells.values, **weight_scale(), **lines)
    ax.set(xlim=(edges[0][0], edges[0][-1]), ylim=(edges[1][-1], edges[1][0]), aspect="equal")
    canvas.bare(ax)
    return mesh


def draw_bar(ax: Any, mesh: Any, inside: bool, title: str = "weight", ticks: Sequence[float] | None = TICKS) -> None:
    """A small scale of the colours, at the right of the map or in its corner."""
    wide, high = _BAR[0], min(_BAR[1], max(canvas.size_of(ax)[1] / 72, _BAR[1] / 2))
    if ticks is not None and high < 0.9 * _BAR[1]:
        ticks = [tick for tick in ticks if tick != 0.02]  # no room beside 0
    corner = ax.figure.dpi_scale_trans + canvas.matplotlib("transforms").ScaledTranslation(1, 1, ax.transAxes)
    left, below = (-0.42, 0.2) if inside else (0.1, 0.0)
    bar = ax.inset_axes([left, -high - below, wide, high], transform=corner)
    ax.figure.colorbar(mesh, cax=bar)
    if ticks is not None:
        bar.set_yticks(ticks, [f"{tick:g}".lstrip("0") or "0" for tick in ticks])
    bar.tick_params(length=2, width=0.5, pad=1.5, colors=canvas.INK, labelsize=canvas.POINTS)
    bar.minorticks_off()
    bar.set_title(title, loc="left", fontsize=canvas.POINTS, color=canvas.QUIET, pad=5)
    bar.spines[:].set_visible(False)


def _labels(texts: Sequence[TextTokens] | None, places: Sequence[int], text: int) -> list[str]:
    """The labels of the tokens at these places; numbers where the tokens are unknown."""
    return [str(i) if texts is None else texts[text].labels[i] for i in places]


def _label(ax: Any, queries: Sequence[str], keys: Sequence[str]) -> None:
    """Every token, or every nth where there are many."""
    down, across = 1, 1
    for _ in range(2):  # with all labels first, then with as many as fit what they leave of the map
        canvas.label_axis(ax.yaxis, [i + 0.5 for i in range(0, len(queries), down)], queries[::down])
        wide, high = canvas.size_of(ax)
        upright = len(keys) >= _UPRIGHT or wide / len(keys) < canvas.text_width(ax, max(keys, key=len)) + 4
        canvas.label_axis(ax.xaxis, [i + 0.5 for i in range(0, len(keys), across)], keys[::across], upright)
        wide, high = canvas.size_of(ax)
        down, across = (math.ceil(canvas.LINE * n / size) for n, size in ((len(queries), high), (len(keys), wide)))


def _label_pooled(ax: Any, cells: Cells) -> None:
    """Positions, and what a cell is."""
    rows, cols = cells.values.shape
    sizes = " × ".join(_size(n, of) for n, of in ((cells.queries, rows), (cells.keys, cols)))
    title = ax.get_title(loc="left").partition(" · ")[0]
    canvas.name_axes(ax, "position of the key", "position of the query", f"{title} · pooled, {sizes} tokens a cell")


def _corner_is_free(ax: Any, cells: Cells) -> bool:
    """Has the upper right corner no cells, as in causal attention, and room for the bar?"""
    rows, cols = cells.values.shape
    sizes = zip(_AROUND_BAR, (cols, rows), canvas.size_of(ax), strict=True)
    across, down = (math.ceil(72 * inches * n / size) for inches, n, size in sizes)
    return down < rows and across < cols and bool(np.ma.getmaskarray(cells.values)[:down, -across:].all())


def _size(tokens: int, of: int) -> str:
    least, most = tokens // of, -(-tokens // of)
    return str(least) if least == most else f"{least}–{most}"


def _write_numbers(ax: Any, mesh: Any, cells: Cells) -> None:
    """The weights in their cells, where they fit."""
    rows, cols = cells.values.shape
    if min(size / n for size, n in zip(canvas.size_of(ax), (cols, rows), strict=True)) < _NUMBERS:
        return
    for row, col in unmasked_cells(cells.values):
        weight = float(cells.values[row, col])
        ink = ink_on(mesh.cmap(mesh.norm(weight)))
        canvas.write_in_cell(ax, (row, col), canvas.short_number(weight), ink, fontsize=7)
