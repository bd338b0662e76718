"""Heads as a table: a report and a comparison in a terminal, with roles in colour, and in a notebook."""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from regard.heads.calls.call import names_in_short
from regard.heads.measure.registry import BY_NAME, STATISTICS
from regard.heads.report.listings import Change, Comparison, HeadList, HeadSummary
from regard.heads.report.report import Seen
from regard.heads.report.roles import ROLES
from regard.show.terminal.marks import MARK, mark_notes
from regard.show.terminal.table import (
    Cell,
    Signed,
    html_table,
    legend_line,
    legend_table,
    terminal_width,
    text_table,
    wrapped_lines,
)
from regard.support.drawing import as_html, as_text
from regard.support.printable import printable, styled

__all__ = ["legend", "names_in_short", "print_heads"]

_FEW = 24  # rows of a table unless all are asked for
_MEANS = "Means over all tokens; induction: over repeated ones, so sums may exceed 1."
_NAMES = 12  # the fewest letters of module names that are worth a place in a heading


def print_heads(text: str) -> None:
    """Print a table: its roles in colour on a terminal, plain where it is piped."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    text = printable(text)
    page = Text(text)
    for role in ROLES.values():
        for match in re.finditer(rf"^  \d+\.\d+\*? +({re.escape(role.name)})(?=  |$)", text, re.MULTILINE):
            page.stylize(role.terminal, *match.span(1))
    Console(file=styled(sys.stdout), highlight=False, soft_wrap=True).print(page)


@as_text.register
def _seen_as_text(
    seen: Seen,
    width: int | None = None,
    all: bool = False,
    layer: int | str | None = None,
    more: str = "seen.table(all=True)",
    few: int | None = None,
) -> str:
    """The heads of a report, grouped by role, rare ones first; `more` says how to see those that are left out."""
    width = terminal_width() if width is None else width
    if not len(seen):
        return _heading(seen, width)
    columns, rows = _rows_of(_chosen(seen, layer))
    shown = rows if all else rows[: few or _FEW]
    lines = [_heading(seen, width), "", text_table(columns, shown, width)]
    if len(shown) < len(rows):
        lines += [f"  {_left_out(rows[len(shown) :])}", f"  All of them: {more}"]
    marks = _marks_below(_chosen(seen, layer), width)
    return "\n".join([*lines, *_legend_below(lines[2], width), *marks])


@as_html.register
def _seen_as_html(seen: Seen) -> str:
    columns, rows = _rows_of(_chosen(seen, None))
    last = f"{_left_out(rows[_FEW:])}. All of them: seen.table(all=True). " if len(rows) > _FEW else ""
    below = "; ".join([last + legend_line(legend(columns)), *mark_notes(seen.portraits())])
    return html_table(_heading(seen, 80).strip(), columns, rows[:_FEW], below)


@as_text.register
def _head_list_as_text(heads: HeadList, width: int | None = None, all: bool = False) -> str:
    """Some heads of a report, in their order."""
    width = terminal_width() if width is None else width
    if not len(heads):
        return f"  none {heads.what}"
    portraits = _listed(heads)
    columns, rows = _rows_of(portraits)
    shown = rows if all else rows[:_FEW]
    lines = [f"  {len(heads)} {heads.what}", "", text_table(columns, shown, width)]
    if len(shown) < len(rows):
        lines.append(f"  … and {len(rows) - _FEW} more: .table(all=True)")
    return "\n".join([*lines, *_legend_below(lines[2], width), *_marks_below(portraits, width)])


@as_html.register
def _head_list_as_html(heads: HeadList) -> str:
    columns, rows = _rows_of(_listed(heads))
    last = f"… and {len(rows) - _FEW} more. " if len(rows) > _FEW else ""
    return html_table(f"{len(heads)} {heads.what}", columns, rows[:_FEW], last + legend_line(legend(columns)))


@as_text.register
def _comparison_as_text(
    comparison: Comparison, width: int | None = None, all: bool = False, more: str | None = None, few: int = _FEW
) -> str:
    """The heads of a comparison, the largest change first; `more` says how to see those that are left out."""
    if not len(comparison):
        return f"  none of {comparison.heads} heads changed"
    heading = f"  {len(comparison)} of {comparison.heads} heads; after − before, the largest change first"
    shown = comparison if all else comparison[:few]
    width = terminal_width() if width is None else width
    table = text_table(*_change_rows(shown), width)
    rest = len(comparison) - len(shown)
    last = [f"  {_more_changes(rest) if more is None else f'… and {rest} more: {more}'}"] if rest else []
    return "\n".join([heading, "", table, *last, *_legend_below(table, width)])


@as_html.register
def _comparison_as_html(comparison: Comparison) -> str:
    heading = f"{len(comparison)} of {comparison.heads} heads, after − before"
    last = f"{_more_changes(len(comparison) - _FEW)}. " if len(comparison) > _FEW else ""
    columns, rows = _change_rows(comparison[:_FEW])
    return html_table(heading, columns, rows, last + legend_line(legend(columns)))


def _chosen(seen: Seen, layer: int | str | None) -> dict[tuple[int, int], HeadSummary]:
    portraits = seen.portraits()
    return {key: portraits[key] for key in seen.order(layer)}


def _listed(heads: HeadList) -> dict[tuple[int, int], HeadSummary]:
    return dict(zip(((head.layer, head.head) for head in heads), heads.summaries, strict=True))


def _marks_below(heads: Mapping[tuple[int, int], HeadSummary], width: int) -> list[str]:
    """What is assumed or unknown about these heads."""
    notes = mark_notes(heads)
    return ["", *(line for note in notes for line in wrapped_lines(note, width))] if notes else []


def _rows_of(heads: Mapping[tuple[int, int], HeadSummary]) -> tuple[list[str], list[list[Cell]]]:
    """The headings of the columns, and a row for each of these heads."""
    # A column without any value is left out: no token was repeated, or all is cross-attention.
    known = {name for one in heads.values() for name, mean in one.means.items() if not math.isnan(mean)}
    columns = [(one.name, one.heading) for one in STATISTICS if one.heading is not None and one.name in known]
    rows: list[list[Cell]] = [
        [
            f"{number}.{head}{MARK if one.marks else ''}",
            one.role.name,
            *(one.means.get(name, math.nan) for name, _ in columns),
        ]
        for (number, head), one in heads.items()
    ]
    return ["head", "role", *(heading for _, heading in columns)], rows


def _change_rows(changes: Sequence[Change]) -> tuple[list[str], list[list[Cell]]]:
    """The headings of the columns, and a row for each change."""
    columns = [(one.name, one.heading) for one in STATISTICS if one.heading is not None and one.compared]
    rows: list[list[Cell]] = [
        [
            *(f"{c.layer}.{c.head}", c.role, _most(c), c.size),
            *(Signed(c.differences.get(name, math.nan)) for name, _ in columns),
        ]
        for c in changes
    ]
    return ["head", "role", "most", "change", *(heading for _, heading in columns)], rows


def _most(change: Change) -> str:
    """The statistic that changed most, before and after."""
    before, after = change.values
    return f"{BY_NAME[change.most].heading or change.most} {before:.2f} → {after:.2f}" if change.most else "–"


def _heading(seen: Seen, width: int) -> str:
    """How many layers, heads and tokens, and the names of the modules where there is space for them."""
    if not len(seen):
        return "  nothing was seen yet"
    sizes = seen.sizes()
    heads = [H for (_, H, _, _), *_ in sizes]
    tokens = [T for layer in sizes for _, _, T, _ in layer]
    texts, runs = sizes[0][0][0], len(seen.forwards)
    parts = [
        f"{_plural(str(len(sizes)), 'layer')} × {_plural(_range(heads), 'head')}",
        ("" if texts == 1 else f"{texts} × ") + _plural(_range(tokens), "token"),
        *([f"{runs} forwards"] if runs > 1 else []),
    ]
    start = "  " + " · ".join(parts)
    space = width - len(start) - 3
    return f"{start} · {names_in_short([name or 'model' for name in seen.layers], space)}" if space >= _NAMES else start


def legend(columns: Sequence[str]) -> dict[str, str]:
    """What these columns of a table of heads are, by heading."""
    own = {"most": "what changed most", "change": "by how much, on a scale from 0 to 1"}
    lines = {name: text for name, text in own.items() if name in columns}
    return lines | {one.heading: one.legend for one in STATISTICS if one.heading in columns and one.heading is not None}


def _legend_below(table: str, width: int) -> list[str]:
    """The legend of the columns that fit into the table, and how to read its means."""
    columns = table.splitlines()[0].split()
    if not (entries := legend(columns)):
        return []
    lines = ["", legend_table(entries, width)]
    if "induction" in columns:
        lines += [f"  {line}" for line in textwrap.wrap(_MEANS, width - 2)]
    return lines


def _left_out(rows: Sequence[Sequence[Cell]]) -> str:
    """How many heads are left out, and their roles."""
    roles = Counter(str(row[1]) for row in rows)
    return f"… and {len(rows)} more: " + " · ".join(f"{count} {role}" for role, count in roles.items())


def _more_changes(rest: int) -> str:
    return f"… and {rest} more: .table(all=True), or fewer: .changed(0.2)"


def _plural(count: str, word: str) -> str:
    return f"{count} {word}{'' if count == '1' else 's'}"


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}–{high}"
