"""Traces as a table: step, operation, shape and why."""

from __future__ import annotations

import re
import shutil

from regard.drawing import as_html, as_text
from regard.show.table import html_table, shorten, text_table
from regard.traces.operation_text import shape_text
from regard.traces.trace import Step, Trace

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
