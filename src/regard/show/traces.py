"""Traces as a table: step, operation, shape and why."""

from __future__ import annotations

import html
import re
import shutil

from regard.drawing import as_html, as_text
from regard.traces.trace import Trace, shape_text

COLUMNS = ("step", "operation", "shape", "why")
_SHORTEST_WHY = 12  # columns kept for the last column when a long operation has to be cut


@as_text.register
def _text(trace: Trace, width: int | None = None) -> str:
    width = shutil.get_terminal_size((80, 24)).columns if width is None else width
    rows = [COLUMNS, *_rows(trace)]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    widths[1] = max(9, min(widths[1], width - 2 - widths[0] - widths[2] - 6 - _SHORTEST_WHY))
    widths.append(width - 2 - sum(widths) - 6)
    lines = [_cut("  " + _heading(trace), width), ""]
    for row in rows:
        cells = [_cut(cell, wide).ljust(wide) for cell, wide in zip(row, widths, strict=True)]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return "\n".join(lines)


@as_html.register
def _html(trace: Trace) -> str:
    head = "".join(f"<th style='text-align:left'>{name}</th>" for name in COLUMNS)
    rows = ["".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row) for row in _rows(trace)]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    title = html.escape(_heading(trace))
    return f"<p>{title}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _heading(trace: Trace) -> str:
    count = len(_rows(trace))
    dtypes = sorted({str(step.dtype).removeprefix("torch.") for step in trace})
    parts = [trace.title, f"{count} step{'s' * (count != 1)}", ", ".join(dtypes)]
    return " · ".join(part for part in parts if part)


def _rows(trace: Trace) -> list[tuple[str, str, str, str]]:
    """One row per step; what happens to keys and values exactly as to queries is shown once."""
    rows: list[tuple[str, str, str, str]] = []
    for step in trace:
        row = (step.name, step.operation, shape_text(step.shape), step.why)
        parent = re.sub(r" (keys|values)(?=( \d+)?$)", "", step.name)  # "split keys", and "split keys 2"
        if parent == step.name or (parent, *row[1:3]) not in [other[:3] for other in rows]:
            rows.append(row)
    return rows


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"
