"""Traces as a table: step, operation, shape and why."""

from __future__ import annotations

import re
import shutil

from regard.drawing import as_html, as_text
from regard.show.table import html_table, shorten, text_table
from regard.traces.operation_text import shape_text
from regard.traces.trace import Trace

COLUMNS = ("step", "operation", "shape", "why")


@as_text.register
def _text(trace: Trace, width: int | None = None) -> str:
    width = shutil.get_terminal_size((80, 24)).columns if width is None else width
    table = text_table(COLUMNS, _rows(trace), width, cut={1: 9, 3: 12})  # operation and why
    return f"{shorten('  ' + _heading(trace), width)}\n\n{table}"


@as_html.register
def _html(trace: Trace) -> str:
    return html_table(_heading(trace), COLUMNS, _rows(trace), left=True)


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
