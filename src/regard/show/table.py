"""Tables: aligned text for a terminal, HTML for a notebook."""

from __future__ import annotations

import html
import math
import shutil
from collections.abc import Sequence

Cell = str | float


class Signed(float):
    """A number that is shown with its sign.

    >>> print(text_table(["head", "sink"], [["0.1", Signed(0.25)], ["0.2", Signed(-0.031)]]))
      head   sink
      0.1   +0.25
      0.2   −0.03
    """


def terminal_width() -> int:
    """The columns of the terminal, at most 120: longer lines are hard to follow. 80 where there is none."""
    return min(shutil.get_terminal_size((80, 24)).columns, 120)


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], width: int = 80) -> str:
    """A row a head, as aligned text: words to the left, numbers to the right.

    >>> print(text_table(["head", "role", "entropy"], [["2.5", "previous token", 0.211], ["0.3", "mixed", 1.5]]))
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


def html_table(heading: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], last: str = "") -> str:
    """The same for a notebook; every name is escaped.

    >>> print(html_table("1 layer", ["head"], [["<b>"]]))
    <p>1 layer</p><table><thead><tr><th>head</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(_text(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    end = f"<p>{html.escape(last)}</p>" if last else ""
    return f"<p>{html.escape(heading)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{end}"


def _text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Signed) and not math.isnan(cell):
        size = f"{abs(cell):.2f}"
        return size if not float(size) else ("+" if cell > 0 else "−") + size
    return "·" if math.isnan(cell) else f"{cell:.2f}" if abs(cell) < 1000 else f"{cell:.0f}"
