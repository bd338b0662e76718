"""A trace as a figure: the tensor of each step, for one text and one head, as a small picture with name and shape.

Everything is placed in points, in one Axes. Rows are tokens, as high in every picture, so that a token can be followed
from step to step.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.show.figures import canvas
from regard.show.figures.canvas import signed_scale, weight_scale
from regard.show.terminal.table import shorten
from regard.show.terminal.traces import shown_steps
from regard.show.terminal.weights import heads_of, matrix_of
from regard.support.drawing import as_figure
from regard.traces.meanings import MATRICES
from regard.traces.operation_text import shape_text
from regard.traces.torch_calls import Step
from regard.traces.trace import Trace

_PICTURE = 60.0  # points of the longer side
_CELL = 10.0  # points of a cell at most
_COLUMN = 76.0  # points of a picture with the space beside it, at least
_LINE, _SPACE = 8.5, 12.0  # points of a line of small text, and below a picture with its text
_SMALL = 7.0
_LINES = 2  # of an operation
_LETTER = 4.3  # points of a small letter of a fixed-width font
_NEAREST = 128  # rows or columns up to which cells have sharp edges
_LEGEND = "row: a token   column: a channel; in scores to weights, a key   blue: above 0   ochre: below 0"


class _Picture(NamedTuple):
    step: Step
    values: Any  # a masked array
    high: float  # in points
    wide: float


@as_figure.register
def _draw(trace: Trace, ax: Any, text: int, head: int, width: float | None) -> Any:
    pictures = _pictures(trace, text, head)
    axes = canvas.axes_for(ax, width, canvas.PAGE)
    axes.set_axis_off()
    wide, high = canvas.size_of(axes)
    across = max(1, int(wide // _COLUMN))
    rows = [pictures[i : i + across] for i in range(0, len(pictures), across)]
    note = canvas.note_below(axes, _LEGEND)
    needed = sum(_height(row, wide / across) for row in rows) + canvas.LINE * (1 + note.get_text().count("\n"))
    if ax is None:
        axes.figure.set_size_inches(axes.figure.get_figwidth(), needed / 72)
        high = needed
    elif high < needed:
        raise ValueError(
            f"{len(pictures)} steps need {needed / 72:.1f} inches of height where the Axes is {wide / 72:.1f} wide, "
            f"and it is {high / 72:.1f} high; make it larger, or leave out ax"
        )
    top = 0.0
    for row in rows:
        for column, picture in enumerate(row):
            _place(axes, picture, column * wide / across, top, wide / across)
        top += _height(row, wide / across)
    axes.set(xlim=(0, wide), ylim=(high, 0), aspect="equal", anchor="NW")
    note.set(transform=axes.transData, position=(0, top))
    return axes


def _pictures(trace: Trace, text: int, head: int) -> list[_Picture]:
    """What is drawn of each step."""
    steps = shown_steps(trace)
    if not steps:
        raise ValueError("this trace has no steps, so there is nothing to plot; run a layer inside it")
    if not trace.has_names and (text or head):
        raise ValueError(
            f"text={text} and head={head} need steps that are named, and this module names none; leave both at 0"
        )
    heads = max(map(heads_of, steps)) if trace.has_names else 1
    texts = max((step.shape[0] for step in steps if len(step.shape) > 2), default=1)
    for name, number, count in (("text", text, texts), ("head", head, heads)):
        if not 0 <= number < count:
            raise ValueError(f"{name}={number} does not exist: this trace has {count}, 0 to {count - 1}")
    matrices = _matrices(steps, text, head, heads if trace.has_names else 0)
    cell = min(_CELL, _PICTURE / max(map(len, matrices)))
    pictures = []
    for step, matrix in zip(steps, matrices, strict=True):
        high, wide = (max(cell * size, 2.0) for size in matrix.shape)
        pictures.append(_Picture(step, matrix, high, min(wide, _PICTURE)))
    return pictures


def _matrices(steps: Sequence[Step], text: int, head: int, heads: int) -> list[Any]:
    """The matrix of each step for this text and head; what the mask hides stays hidden in later steps.

    heads: 0 where steps have no names.
    """
    matrices = []
    hidden: Any = None
    for step in steps:
        number = head * heads_of(step) // heads if heads else 0
        value = matrix_of(step, number, min(text, step.shape[0] - 1) if len(step.shape) > 2 else 0)
        while value.dim() > 2:
            value = value[0]
        values: Any = value.reshape(-1, value.shape[-1] if value.dim() else 1).double().cpu().numpy()
        if step.name.split(" ")[0] in MATRICES:
            hidden = np.isneginf(values) if np.isneginf(values).any() else hidden
            if hidden is not None and hidden.shape == values.shape:
                values = np.ma.array(values, mask=hidden)
        matrices.append(np.ma.masked_invalid(values))
    return matrices


def _height(row: list[_Picture], wide: float) -> float:
    lines = max(len(_operation(one.step, wide)) for one in row)
    return 2 * canvas.LINE + max(one.high for one in row) + lines * _LINE + _SPACE


def _operation(step: Step, wide: float) -> list[str]:
    """The operation in lines that fit the width, in points."""
    letters = int((wide - 6) / _LETTER)
    lines = [""]
    for part in re.findall(r"[^\s(.,]*[(.,]?\s*", step.operation):  # a line may end after a bracket, point or comma
        if len((lines[-1] + part).rstrip()) <= letters:
            lines[-1] += part
        else:
            lines.append(part)
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 1], shorten("".join(lines[_LINES - 1 :]), letters)]


def _place(ax: Any, picture: _Picture, left: float, top: float, wide: float) -> None:
    """A picture with its name and shape above, and its operation below."""
    step, values, high, across = picture
    canvas.write(ax, left, top, shorten(step.name, int(wide / _LETTER)), va="top", weight="bold")
    canvas.write(ax, left, top + canvas.LINE, shape_text(step.shape), va="top", fontsize=_SMALL, color=canvas.QUIET)
    upper = top + 2 * canvas.LINE + 1
    is_weights = step.name.split(" ")[0] in ("weights", "dropout")
    scale = weight_scale() if is_weights else signed_scale(float(np.abs(values).max() or 0))
    sharp = {"interpolation": "nearest"} if max(values.shape) <= _NEAREST else {}
    ax.imshow(values, extent=(left, left + across, upper + high, upper), aspect="auto", **scale, **sharp)
    small = {"fontsize": _SMALL, "color": canvas.QUIET, "va": "top", "linespacing": 1.1}
    canvas.write(ax, left, upper + high + 2, "\n".join(_operation(step, wide)), family="monospace", **small)
