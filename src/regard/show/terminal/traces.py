"""Traces as a table: step, operation, shape and why."""

import re
import shutil
import textwrap
from itertools import zip_longest

from regard.show.terminal.table import as_printed, html_table, text_table, wrapped
from regard.support.drawing import as_html, as_text
from regard.traces.operation_text import shape_text
from regard.traces.torch_calls import Step
from regard.traces.trace import Trace

COLUMNS = ("step", "operation", "shape", "why")
_LEAST = 9  # columns for an operation, and for why

_Row = tuple[str, str, str, str]


@as_text.register
def _text(trace: Trace, width: int | None = None) -> str:
    width = shutil.get_terminal_size((80, 24)).columns if width is None else width
    rows = [(a, as_printed(b), c, as_printed(d)) for a, b, c, d in _rows(trace)]
    return f"{wrapped(_heading(trace), width)}\n\n{text_table(COLUMNS, _fitted(rows, width), width)}"


@as_html.register
def _html(trace: Trace) -> str:
    return html_table(_heading(trace), COLUMNS, _rows(trace), left=True)


def _heading(trace: Trace) -> str:
    count = len(_rows(trace))
    dtypes = sorted({str(step.dtype).removeprefix("torch.") for step in trace})
    parts = [trace.title, f"{count} step{'s' * (count != 1)}", ", ".join(dtypes)]
    return " · ".join(part for part in parts if part)


def _rows(trace: Trace) -> list[_Row]:
    return [(step.name, step.operation, shape_text(step.shape), step.why) for step in shown_steps(trace)]


def shown_steps(trace: Trace) -> list[Step]:
    """The steps that are drawn; what happens to keys and values exactly as to queries is shown once."""
    steps: list[Step] = []
    for step in trace:
        parent = re.sub(r" (keys|values)(?=( \d+)?$)", "", step.name)  # "split keys", and "split keys 2"
        known = [(other.name, other.operation, other.shape) for other in steps]
        if parent == step.name or (parent, step.operation, step.shape) not in known:
            steps.append(step)
    return steps


def _fitted(rows: list[_Row], width: int) -> list[_Row]:
    """The rows; where they are too wide with shapes as 2×7×6, and with operation and why on several lines."""
    names, operations, shapes, reasons = (max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True))
    if 8 + names + operations + shapes + reasons <= width:  # two spaces before each column
        return rows
    rows = [(name, operation, shape.replace(" ", ""), why) for name, operation, shape, why in rows]
    shapes = max(len(text) for text in ("shape", *(row[2] for row in rows)))
    both = width - 8 - names - shapes  # the columns that operation and why share
    if both < 2 * _LEAST:  # why does not fit; text_table says so
        return _on_lines(rows, max(both + 2, _LEAST), max(reasons, 1))
    sizes = range(min(operations, both - _LEAST), _LEAST - 1, -1)
    return min((_on_lines(rows, size, both - size) for size in sizes), key=lambda tried: _cost(rows, tried))


def _on_lines(rows: list[_Row], operation: int, why: int) -> list[_Row]:
    """The rows with operation and why at most so wide; what does not fit is in rows below."""
    result: list[_Row] = []
    for name, made, shape, because in rows:
        lines = (textwrap.wrap(made, operation), textwrap.wrap(because, why, break_on_hyphens=False))
        for number, (a, b) in enumerate(zip_longest(*lines, fillvalue="")):
            result.append((name, a, shape, b) if number == 0 else ("", a, "", b))
    return result


def _cost(rows: list[_Row], tried: list[_Row]) -> int:
    """Lines, and twice as much for a word that is taken apart."""
    return len(tried) + 2 * (sum(map(_words, tried)) - sum(map(_words, rows)))


def _words(row: _Row) -> int:
    return len(f"{row[1]} {row[3]}".split())
