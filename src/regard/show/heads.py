"""Heads as a table: aligned text of 80 columns, HTML for a notebook, colour only where someone looks at a terminal."""

from __future__ import annotations

import html
import math
import re
import shutil
import sys
from collections.abc import Sequence

Cell = str | float


class Difference(float):
    """A number that is shown with its sign.

    >>> print(heads_table(["head", "sink"], [["0.1", Difference(0.25)], ["0.2", Difference(-0.031)]]))
      head   sink
      0.1   +0.25
      0.2   −0.03
    """


_COLOURS = {
    "induction": "magenta",
    "duplicate": "magenta",
    "previous token": "green",
    "self": "green",
    "first token": "yellow",
    "position": "cyan",
    "local": "cyan",
}


def page_width() -> int:
    """The columns of the terminal, at most 120: longer lines are hard to follow. 80 where there is none."""
    return min(shutil.get_terminal_size((80, 24)).columns, 120)


def heads_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], width: int = 80) -> str:
    """A row a head, as aligned text: words to the left, numbers to the right.

    >>> print(heads_table(["head", "role", "entropy"], [["2.5", "previous token", 0.211], ["0.3", "mixed", 1.5]]))
      head  role            entropy
      2.5   previous token     0.21
      0.3   mixed              1.50

    Columns that do not fit the width are left out, the last first.
    """
    texts = [[_text(cell) for cell in row] for row in rows]
    wide = [max([len(name), *(len(row[i]) for row in texts)]) for i, name in enumerate(columns)]
    words = [all(isinstance(row[i], str) for row in rows) for i in range(len(columns))]
    fit = len(columns)
    while fit > 1 and sum(wide[:fit]) + 2 * fit > width:
        fit -= 1
    lines = []
    for row in [list(columns), *texts]:
        cells = [row[i].ljust(wide[i]) if words[i] else row[i].rjust(wide[i]) for i in range(fit)]
        lines.append(("  " + "  ".join(cells)).rstrip()[: max(width, 1)])
    return "\n".join(lines)


def heads_html(heading: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], last: str = "") -> str:
    """The same for a notebook; every name is escaped.

    >>> print(heads_html("1 layer", ["head"], [["<b>"]]))
    <p>1 layer</p><table><thead><tr><th>head</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(_text(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    end = f"<p>{html.escape(last)}</p>" if last else ""
    return f"<p>{html.escape(heading)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{end}"


def names_in_short(names: Sequence[str], width: int = 60) -> str:
    """Many module names in one line; a run of numbers is written as one.

    >>> names_in_short(["h.0.attn", "h.1.attn", "h.2.attn"])
    'h.0–2.attn'
    >>> names_in_short(["encoder.attn", "decoder.attn"])
    'encoder.attn, decoder.attn'
    """
    runs: list[tuple[str, int, int]] = []  # a pattern with {} for the number that moves, its first and last value
    for name in names:
        if runs and (grown := _grown(runs[-1], name)):
            runs[-1] = grown
        else:
            runs.append((name, -1, -1))
    text = ", ".join(form.replace("{}", f"{low}–{high}") if low >= 0 else form for form, low, high in runs)
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def print_heads(text: str) -> None:
    """Print a table: its roles in colour on a terminal, plain where it is piped."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    page = Text(text)
    for role, colour in _COLOURS.items():
        for found in re.finditer(rf"^  \d+\.\d+ +({re.escape(role)})(?=  |$)", text, re.MULTILINE):
            page.stylize(colour, *found.span(1))
    Console(highlight=False, soft_wrap=True).print(page)


def _grown(run: tuple[str, int, int], name: str) -> tuple[str, int, int] | None:
    """The run with one more name in it, where the name is the next of it."""
    form, low, high = run
    if low >= 0:
        return (form, low, high + 1) if form.replace("{}", str(high + 1)) == name else None
    for found in re.finditer(r"\d+", form):
        number = int(found.group())
        if form[: found.start()] + str(number + 1) + form[found.end() :] == name:
            return form[: found.start()] + "{}" + form[found.end() :], number, number + 1
    return None


def _text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Difference) and not math.isnan(cell):
        size = f"{abs(cell):.2f}"
        return size if not float(size) else ("+" if cell > 0 else "−") + size
    return "·" if math.isnan(cell) else f"{cell:.2f}" if abs(cell) < 1000 else f"{cell:.0f}"
