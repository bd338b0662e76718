"""Heads as a table, in a terminal with roles in colour, and in a notebook: reports, comparisons, lists and probes.

A layer of which something is assumed or unknown has a mark, and a note below; the same wherever heads are shown.
"""

import math
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from regard.heads.calls.call import names_in_short
from regard.heads.measure.registry import BY_NAME, STATISTICS
from regard.heads.probe import ROLES as PROBED
from regard.heads.probe import SCORES, ProbeReport
from regard.heads.report.listings import Change, Comparison, HeadList, HeadSummary
from regard.heads.report.report import Seen
from regard.heads.report.roles import ROLES
from regard.show.terminal.table import Cell, Signed, html_table, legend_table, terminal_width, text_table, wrapped_lines
from regard.support.drawing import as_html, as_text
from regard.support.printable import printable, styled

Heads = Mapping[tuple[int, int], HeadSummary]  # by layer and head
Rows = Sequence[Sequence[Cell]]
MARK = "*"
_FEW = 24  # rows of a table unless all are asked for
_FEW_PROBED = 12
_PROBE_LEGEND = {name: f"mean {BY_NAME[name].legend}" for name in SCORES}
_MEANS = "Means over all tokens; induction: over repeated ones, so sums may exceed 1."
_OVERLAP = "The first token is also the one before the second, so sums may exceed 1."
SHARES = ("first", "previous", "self", "next", "induction", "duplicate")
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
    heads = _chosen(seen, layer)
    columns, rows = head_rows(heads)
    shown = rows if all else rows[: few or _FEW]
    rest = [f"  {_left_out(rows[len(shown) :])}", f"  All of them: {more}"] if len(shown) < len(rows) else []
    return below(_heading(seen, width), columns, shown, width, rest, heads)


@as_html.register
def _seen_as_html(seen: Seen) -> str:
    columns, rows = head_rows(_chosen(seen, None))
    last = f"{_left_out(rows[_FEW:])}. All of them: seen.table(all=True). " if len(rows) > _FEW else ""
    notes = mark_notes(seen.portraits())
    return html_table(_heading(seen, 80).strip(), columns, rows[:_FEW], last, legend(columns), notes)


@as_text.register
def _head_list_as_text(heads: HeadList, width: int | None = None, all: bool = False) -> str:
    """Some heads of a report, in their order."""
    width = terminal_width() if width is None else width
    if not len(heads):
        return f"  none {heads.what}"
    portraits = _listed(heads)
    columns, rows = head_rows(portraits)
    shown = rows if all else rows[:_FEW]
    rest = [f"  … and {len(rows) - _FEW} more: .table(all=True)"] if len(shown) < len(rows) else []
    return below(f"  {len(heads)} {heads.what}", columns, shown, width, rest, portraits)


@as_html.register
def _head_list_as_html(heads: HeadList) -> str:
    columns, rows = head_rows(_listed(heads))
    last = f"… and {len(rows) - _FEW} more. " if len(rows) > _FEW else ""
    return html_table(f"{len(heads)} {heads.what}", columns, rows[:_FEW], last, legend(columns))


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
    left = len(comparison) - len(shown)
    rest = [f"  {_more_changes(left) if more is None else f'… and {left} more: {more}'}"] if left else []
    return below(heading, *_change_rows(shown), width, rest)


@as_html.register
def _comparison_as_html(comparison: Comparison) -> str:
    heading = f"{len(comparison)} of {comparison.heads} heads, after − before"
    last = f"{_more_changes(len(comparison) - _FEW)}. " if len(comparison) > _FEW else ""
    columns, rows = _change_rows(comparison[:_FEW])
    return html_table(heading, columns, rows, last, legend(columns))


def _chosen(seen: Seen, layer: int | str | None) -> Heads:
    portraits = seen.portraits()
    return {key: portraits[key] for key in seen.order(layer)}


def _listed(heads: HeadList) -> Heads:
    return dict(zip(((head.layer, head.head) for head in heads), heads.summaries, strict=True))


def marked_layers(heads: Heads) -> set[int]:
    """The numbers of the layers of which something must be said."""
    return {layer for (layer, _), one in heads.items() if one.marks}


def mark_notes(heads: Heads) -> list[str]:
    """What is said of them: each thing once, with the layers.

    >>> from regard.heads.report.roles import Role
    >>> one = HeadSummary(Role("mixed", 0.0, 0.0, ""), {}, 5, ("positions unknown: 64 queries attend to 16 keys",))
    >>> mark_notes({(0, 0): one, (0, 1): one, (1, 0): one})
    ['* layers 0–1: positions unknown: 64 queries attend to 16 keys']
    """
    layers: dict[str, set[int]] = {}
    for (layer, _), one in heads.items():
        for mark in one.marks:
            layers.setdefault(mark, set()).add(layer)
    return [
        f"{MARK} layer{'s' * (len(those) > 1)} {names_in_short([str(i) for i in sorted(those)])}: {mark}"
        for mark, those in layers.items()
    ]


def head_rows(heads: Heads) -> tuple[list[str], list[list[Cell]]]:
    """The headings of the columns, and a row for each of these heads."""
    # A column without any value is left out: no token was repeated, or all is cross-attention.
    known = {name for one in heads.values() for name, mean in one.means.items() if not math.isnan(mean)}
    columns = [(one.name, one.heading) for one in STATISTICS if one.heading is not None and one.name in known]
    rows: list[list[Cell]] = []
    for (layer, head), one in heads.items():
        means = [one.means.get(name, math.nan) for name, _ in columns]
        rows.append([f"{layer}.{head}{MARK if one.marks else ''}", one.role.name, *means])
    return ["head", "role", *(heading for _, heading in columns)], rows


def _change_rows(changes: Sequence[Change]) -> tuple[list[str], list[list[Cell]]]:
    """The headings of the columns, and a row for each change."""
    columns = [(one.name, one.heading) for one in STATISTICS if one.heading is not None and one.compared]
    rows: list[list[Cell]] = []
    for one in changes:
        before, after = one.values
        most = f"{BY_NAME[one.most].heading or one.most} {before:.2f} → {after:.2f}" if one.most else "–"
        differences = [Signed(one.differences.get(name, math.nan)) for name, _ in columns]
        rows.append([f"{one.layer}.{one.head}", one.role, most, one.size, *differences])
    return ["head", "role", "most", "change", *(heading for _, heading in columns)], rows


def _heading(seen: Seen, width: int) -> str:
    """How many layers, heads and tokens, and the names of the modules where there is space for them."""
    if not len(seen):
        return "  nothing was seen yet"
    sizes = seen.sizes()
    heads = [H for (_, H, _, _), *_ in sizes]
    tokens = [T for layer in sizes for _, _, T, _ in layer]
    texts, runs = sizes[0][0][0], len(seen.forwards)
    parts = [
        f"{plural(str(len(sizes)), 'layer')} × {plural(_range(heads), 'head')}",
        ("" if texts == 1 else f"{texts} × ") + plural(_range(tokens), "token"),
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


def below(
    heading: str, columns: Sequence[str], rows: Rows, width: int, rest: Sequence[str], heads: Heads | None = None
) -> str:
    """A table under its heading; below it what is left out, the legend of its columns, and the notes of marks."""
    table = text_table(columns, rows, width)
    lines = [heading, "", table, *rest]
    fitting = table.splitlines()[0].split()
    if entries := legend(fitting):
        lines += ["", legend_table(entries, width)]
        if note := _sums_note(columns, rows, fitting):
            lines += [f"  {line}" for line in textwrap.wrap(note, width - 2)]
    if notes := mark_notes(heads or {}):
        lines += ["", *(line for note in notes for line in wrapped_lines(note, width))]
    return "\n".join(lines)


def _sums_note(columns: Sequence[str], rows: Rows, fitting: Sequence[str]) -> str:
    """Why the shares of a row may sum to more than 1, where that can be seen."""
    if "induction" in fitting:
        return _MEANS
    shares = [i for i, name in enumerate(columns) if name in fitting and name in SHARES]
    sums = [sum(cell for cell in (row[i] for i in shares) if isinstance(cell, float)) for row in rows]
    return _OVERLAP if any(one > 1.005 for one in sums) else ""


def _left_out(rows: Rows) -> str:
    """How many heads are left out, and their roles."""
    roles = Counter(str(row[1]) for row in rows)
    return f"… and {len(rows)} more: " + " · ".join(f"{count} {role}" for role, count in roles.items())


def _more_changes(rest: int) -> str:
    return f"… and {rest} more: .table(all=True), or fewer: .changed(0.2)"


def plural(count: str, word: str) -> str:
    return f"{count} {word}{'' if count == '1' else 's'}"


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}–{high}"


def statistics_table(seen: Seen, heads: Sequence[tuple[int, int]], width: int = 80) -> str:
    """The means of two heads, (layer, head), and their difference.

    The order is that of the differences as shares of the largest possible value, as in a comparison of two reports.
    """
    one, two = (seen.portraits()[place] for place in heads)
    shares = one.shares(), two.shares()
    known = [name for name in one.means if name in two.means and not math.isnan(one.means[name] + two.means[name])]
    known.sort(key=lambda name: -abs(shares[1][name] - shares[0][name]))
    columns = ["statistic", *(f"{layer}.{head}" for layer, head in heads), "difference"]
    rows: list[list[Cell]] = []
    for name in known:
        values = one.means[name], two.means[name]
        rows.append([BY_NAME[name].heading or name, *values, Signed(values[1] - values[0])])
    legend = {BY_NAME[name].heading or name: BY_NAME[name].legend for name in known}
    return f"{text_table(columns, rows, width)}\n\n{legend_table(legend, width)}"


@as_text.register
def _probe_as_text(report: ProbeReport, width: int | None = None, all: bool = False) -> str:
    width = terminal_width() if width is None else width
    columns, rows, count = _probe_rows(report)
    shown = rows if all else rows[:_FEW_PROBED]
    lines = [*wrapped_lines(report.what, width), "", text_table(columns, shown, width), f"  {count}"]
    if len(shown) < len(rows):
        lines.append(f"  … and {len(rows) - _FEW_PROBED} more heads: .table(all=True)")
    return "\n".join([*lines, "", legend_table(_PROBE_LEGEND, width)])


@as_html.register
def _probe_as_html(report: ProbeReport) -> str:
    columns, rows, count = _probe_rows(report)
    return html_table(report.what, columns, rows[:_FEW_PROBED], f"{count}. ", _PROBE_LEGEND)


def _probe_rows(report: ProbeReport) -> tuple[list[str], list[list[Cell]], str]:
    """The headings of the columns, a row for each head, and how many heads have each role."""
    heads = report.heads()
    rows: list[list[Cell]] = [
        [f"{head.layer}.{head.head}", summary.role.name, *(summary.means[name] for name in SCORES)]
        for head, summary in zip(heads, heads.summaries, strict=True)
    ]
    count = "Heads by role: " + " · ".join(f"{len(report.heads(role=role))} {role}" for role in PROBED)
    return ["head", "role", *SCORES], rows, count
