"""A probe as a table: the scores of the heads, and what was run."""

from __future__ import annotations

from regard.heads.measure.registry import BY_NAME
from regard.heads.probe import ROLES, SCORES, ProbeReport
from regard.show.terminal.table import (
    Cell,
    html_table,
    legend_line,
    legend_table,
    terminal_width,
    text_table,
    wrapped_lines,
)
from regard.support.drawing import as_html, as_text

_FEW = 12  # rows unless all are asked for
_COLUMNS = ["head", "role", *SCORES]
_LEGEND = {name: f"mean {BY_NAME[name].legend}" for name in SCORES}


@as_text.register
def _probe_as_text(report: ProbeReport, width: int | None = None, all: bool = False) -> str:
    width = terminal_width() if width is None else width
    rows = _rows(report)
    shown = rows if all else rows[:_FEW]
    lines = [*wrapped_lines(report.what, width), "", text_table(_COLUMNS, shown, width), f"  {_count(report)}"]
    if len(shown) < len(rows):
        lines.append(f"  … and {len(rows) - _FEW} more heads: .table(all=True)")
    return "\n".join([*lines, "", legend_table(_LEGEND, width)])


@as_html.register
def _probe_as_html(report: ProbeReport) -> str:
    return html_table(report.what, _COLUMNS, _rows(report)[:_FEW], f"{_count(report)}. {legend_line(_LEGEND)}")


def _rows(report: ProbeReport) -> list[list[Cell]]:
    heads = report.heads()
    return [
        [f"{head.layer}.{head.head}", summary.role.name, *(summary.means[name] for name in SCORES)]
        for head, summary in zip(heads, heads.summaries, strict=True)
    ]


def _count(report: ProbeReport) -> str:
    return "Heads by role: " + " · ".join(f"{len(report.heads(role=role))} {role}" for role in ROLES)
