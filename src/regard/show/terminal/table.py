"""Tables: aligned text for a terminal, HTML for a notebook. Everything in regard that has columns is written here."""

import html
import math
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence

Cell = str | float


class Signed(float):
    """A number that is shown with its sign.

    >>> print(text_table(["head", "sink"], [["0.1", Signed(0.25)], ["0.2", Signed(-0.031)]]))
      head   sink
      0.1   +0.25
      0.2   −0.03
    """


def terminal_width() -> int:
    """The columns of the terminal: at most 120, because longer lines are hard to read; 80 without a terminal."""
    return min(shutil.get_terminal_size((80, 24)).columns, 120)


def as_printed(text: str) -> str:
    """The text as stdout will write it: where it knows no Unicode, √64 takes more columns than in a Unicode terminal.

    A stdout that raises UnicodeEncodeError is left alone; commands let it replace symbols instead.
    """
    encoding, errors = getattr(sys.stdout, "encoding", None), getattr(sys.stdout, "errors", None) or "strict"
    return text if encoding is None or errors == "strict" else text.encode(encoding, errors).decode(encoding)


def wrapped(text: str, width: int, indent: str = "  ", then: str | None = None) -> str:
    """The text in lines of at most `width` columns, each indented; `then` is the indent of all but the first.

    >>> print(wrapped("Each row sums to 1. · is hidden.", width=22))
      Each row sums to 1.
      · is hidden.
    """
    wrapper = textwrap.TextWrapper(width, indent, indent if then is None else then, break_on_hyphens=False)
    return wrapper.fill(as_printed(text))


def wrapped_lines(text: str, width: int) -> list[str]:
    """The same as a list, later lines indented more; a no-break space keeps two words on one line."""
    return wrapped(text, width, then="    ").replace("\xa0", " ").splitlines()


def text_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    width: int | None = 80,
    *,
    words: int | None = None,
    marked: int | None = None,
    cut: Mapping[int, int] | None = None,
) -> str:
    """Aligned lines, two spaces before each column: words to the left, numbers to the right.

    >>> print(text_table(["head", "role", "entropy"], [["2.5", "previous token", 0.211], ["0.3", "mixed", 1.5]]))
      head  role            entropy
      2.5   previous token     0.21
      0.3   mixed              1.50

    columns: their names; without names there is no heading.
    width: the longest line; None for no limit. Columns that do not fit are left out, the last first, and named below
        the table; or they are shortened by `cut`.
    words: the first so many columns are aligned left, the others right; by default, those without numbers are.
    marked: the row that gets an arrow.
    cut: shorten these columns with … where the lines are too long: {column: its least width}. The last of them gets the
        remaining width.

    >>> print(text_table(["head", "sink", "self"], [["2.5", 0.5, 0.25]], width=14))
      head  sink
      2.5   0.50
      not shown at
        this
        width:
        self
    >>> print(text_table(["name", "why"], [["softmax", "every row sums to 1"]], width=24, cut={1: 6}))
      name     why
      softmax  every row su…
    """
    texts = [[as_printed(_text(cell)) for cell in row] for row in ([columns] if columns else []) + list(rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    shown, width = len(widths), sys.maxsize if width is None else width
    only_words = [all(isinstance(row[i], str) for row in rows) for i in range(shown)]
    left = only_words if words is None else [i < words for i in range(shown)]
    if cut and widths:
        widths = _shortened(widths, width, cut)
    else:
        shown = max((n for n in range(1, shown + 1) if sum(widths[:n]) + 2 * n <= width), default=1)
    lines = []
    for number, row in enumerate(texts, start=-bool(columns)):
        cells = [_padded(*cell) for cell in zip(row[:shown], widths, left, strict=False)]
        line = (("→ " if number == marked else "  ") + "  ".join(cells)).rstrip()
        lines.append(line if cut else shorten(line, width))
    if shown < len(widths):
        names = ", ".join(columns[shown:]) or f"the last {len(widths) - shown}"
        note = f"not shown at this width: {names}"
        lines += textwrap.wrap(note, max(width, 10), initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)


def _padded(text: str, width: int, left: bool) -> str:
    text = shorten(text, width)
    return text.ljust(width) if left else text.rjust(width)


def legend_table(legend: Mapping[str, str], width: int) -> str:
    """Names and what they mean, below a table."""
    return text_table([], list(legend.items()), width, cut={1: 20})


def _shortened(widths: Sequence[int], width: int, cut: Mapping[int, int]) -> list[int]:
    """The widths of columns, those in `cut` reduced from the first to the last until a line has at most `width`."""
    widths = list(widths)
    rest = width - 2 * len(widths) - sum(size for i, size in enumerate(widths) if i not in cut)
    *others, last = sorted(cut)
    for at, i in enumerate(others):
        behind = sum(cut[later] for later in [*others[at + 1 :], last])
        widths[i] = max(cut[i], min(widths[i], rest - behind))
        rest -= widths[i]
    widths[last] = max(min(widths[last], rest), 1)
    return widths


def html_table(
    heading: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    last: str = "",
    legend: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    *,
    left: bool = False,
) -> str:
    """A table for a notebook; every string is escaped.

    >>> print(html_table("1 layer", ["head"], [["<b>"]]))
    <p>1 layer</p><table><thead><tr><th>head</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>

    last, legend, notes: below the table, one after the other. left: align cells left, which a notebook does not.
    """
    style = " style='text-align:left'" if left else ""
    head = "".join(f"<th{style}>{html.escape(name)}</th>" for name in columns)
    lines = ("".join(f"<td{style}>{html.escape(_text(cell))}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    last += "; ".join([*(f"{name}: {text}" for name, text in (legend or {}).items()), *notes])
    end = f"<p>{html.escape(last)}</p>" if last else ""
    return f"<p>{html.escape(heading)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{end}"


def shorten(text: str, width: int) -> str:
    """Text of at most `width` columns, at least one; … stands for the rest.

    >>> shorten("Donaudampfschifffahrt", 10), shorten("cat", 10), shorten("猫が座った", 6)
    ('Donaudamp…', 'cat', '猫が…')
    """
    if len(text) <= width and text_columns(text) <= width:
        return text
    text = text[: max(width - 1, 0)]
    while text_columns(text) > max(width - 1, 0):
        text = text[:-1]
    return text + "…"


def text_columns(text: str) -> int:
    """How many columns of a terminal a text takes: Chinese characters and emoji take two.

    >>> text_columns("cat"), text_columns("猫:2")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # not needed by most texts

    return cell_len(text)


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, unless it is shown as 0.

    >>> signed(-0.031), signed(0.001)
    ('−0.03', '0.00')
    """
    size = f"{abs(value):.{digits}f}"
    return size if not float(size) else ("+" if value > 0 else "−") + size


def _text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Signed) and not math.isnan(cell):
        return signed(cell)
    return "·" if math.isnan(cell) else f"{cell:.2f}" if abs(cell) < 1000 else f"{cell:.0f}"
