"""Matrices as tables of numbers, such as one step of a trace: queries by keys, or tokens by channels."""

import math
import re
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from regard.show.terminal.table import shorten, text_table, wrapped
from regard.traces.meanings import MATRICES
from regard.traces.torch_calls import Step

_WIDEST = 10  # characters of a token's name
_SHORT = 7  # where the keys do not fit one table
_DIGITS = 2  # after the point, at least, where a matrix is wider than the terminal
_BLOCKS = 4  # tables below one another, for matrices wider than the terminal
_TOKENS_FIRST = {"split", "split keys", "split values", "back"}  # (B, T, H, D); after transpose it is (B, H, T, D)
_HEADS_JOINED = {"queries", "keys", "values", "concat"}  # (B, T, H·D): a head is some of the channels
_MEANINGS = {
    "scores": "A high score: the query matches the key.",
    "mask": "The scores; −∞ where hidden.",
    "scaled": "What the softmax gets.",
    "weights": "Each row sums to 1.",
    "dropout": "In training, some weights are 0.",
}


def weights_table(
    weights: Float[Tensor, "T S"],
    rows: Sequence[str],
    cols: Sequence[str],
    width: int = 80,
    digits: int = 2,
    zero_is_hidden: bool = True,
) -> str:
    """How much each query (row) attends to each key (column); · is hidden.

    >>> import torch
    >>> print(weights_table(torch.tensor([[1.0, 0.0], [0.25, 0.75]]), ["The", "cat"], ["The", "cat"]))
            The   cat
      The  1.00     ·
      cat  0.25  0.75

    Where the width is too small, columns are as narrow as their numbers and names allow, then numbers have fewer
    digits, at least two. Keys that still do not fit come in a second table below, without the rows that see none of
    them; at most four tables, then the keys that are left are named.
    zero_is_hidden: a weight of 0 is hidden too, as −∞ always is; not for scores, which may be 0.
    """
    values = weights.tolist()
    cells = _cells(values, digits, zero_is_hidden)
    if _columns_that_fit(cells, rows, cols, width) < len(cols):
        for fewer in range(digits, min(digits, _DIGITS) - 1, -1):
            cells = _cells(values, fewer, zero_is_hidden)
            table = _table(cells, rows, cols, even=False)
            if max(map(len, table.splitlines())) <= width:
                return table
        # Several tables: short names, so that few are enough.
        rows, cols = [short_label(name, _WIDEST) for name in rows], [short_label(name, _SHORT) for name in cols]
    fit = _columns_that_fit(cells, rows, cols, width)
    blocks: list[str] = []
    start = 0
    while start < len(cols) and len(blocks) < _BLOCKS:
        visible = [i for i, row in enumerate(cells) if start == 0 or any(c != "·" for c in row[start : start + fit])]
        if visible:
            part = [cells[i][start : start + fit] for i in visible]
            blocks.append(_table(part, [rows[i] for i in visible], cols[start : start + fit]))
        start += fit
    if start < len(cols):
        rest = f"  … and {len(cols) - start} more keys: {', '.join(cols[start:])}"
        blocks.append(shorten(rest, width))
    return "\n\n".join(blocks)


def shaded_table(weights: Float[Tensor, "T S"], rows: Sequence[str], cols: Sequence[str]) -> list[str]:
    r"""The lines of a small table with two digits and a shade for each weight; · is 0.

    >>> import torch
    >>> print(*shaded_table(torch.tensor([[1.0, 0.0], [0.25, 0.75]]), ["The", "cat"], ["The", "cat"]), sep="\n")
         The  cat
    The 1.0█    ·
    cat .25░ .75▓
    """
    first = max(map(len, rows))
    width = max(5, *(len(one) + 2 for one in cols))
    lines = [" " * first + "".join(f"{one:>{width}}" for one in cols)]
    for name, values in zip(rows, weights.tolist(), strict=True):
        cells = "".join(f"{_shaded(value):>{width}}" for value in values)
        lines.append(f"{name:<{first}}{cells}")
    return [line.rstrip() for line in lines]


def _shaded(value: float) -> str:
    if value != value:
        return "NaN"
    shade = " ░▒▓█"[min(int(abs(value) * 5), 4)]
    return "·" if value == 0 else (f"{value:.2f}"[1:] if 0 < value < 0.995 else f"{value:.1f}") + shade


def channels_table(
    values: Float[Tensor, "T n"], rows: Sequence[str], first: int = 0, width: int = 80, digits: int = 2
) -> str:
    """The numbers of each token (row), channel by channel (column); `first` is the number of the first column.

    >>> import torch
    >>> print(channels_table(torch.tensor([[0.5, -1.0], [0.25, 12.0]]), ["The", "cat"], first=64))
              64     65
      The   0.50  −1.00
      cat   0.25  12.00

    Channels that do not fit the width are named in the last line.
    """
    cells = [[_number(number, digits) for number in row] for row in values.tolist()]
    cols = [str(first + i) for i in range(values.shape[1])]
    if _columns_that_fit(cells, rows, cols, width) < len(cols):
        rows = [short_label(name, _WIDEST) for name in rows]
    fit = _columns_that_fit(cells, rows, cols, width)
    table = _table([row[:fit] for row in cells], rows, cols[:fit])
    left = len(cols) - fit
    return table if left <= 0 else f"{table}\n  … and {left} more channels: {first + fit} to {first + len(cols) - 1}"


def marks_legend(labels: Sequence[str]) -> str:
    """What ## and @ in the labels of tokens mean; "" where there are none.

    >>> marks_legend(["Al", "##ice", "the@2", "and", "the@4"])
    '##ice continues the word before it; the@2 is the token at position 2, from 0.'
    """
    piece = next((label for label in labels if label.startswith("##") and len(label) > 2), "")
    repeated = next((label for label in labels if "@" in label[1:] and label.rpartition("@")[2].isdigit()), "")
    parts = [f"{piece} continues the word before it"] if piece else []
    parts += [f"{repeated} is the token at position {repeated.rpartition('@')[2]}, from 0"] if repeated else []
    return f"{'; '.join(parts)}." if parts else ""


def short_label(label: str, width: int) -> str:
    """A token's label in at most `width` characters; the position behind it stays.

    >>> short_label("beginning@21", 7), short_label("Donaudampfschiff", 7)
    ('beg…@21', 'Donaud…')
    """
    name, at, position = label.rpartition("@")
    if len(label) <= width or not (name and position.isdigit() and len(position) < width - 2):
        return shorten(label, width)
    return shorten(name, width - 1 - len(position)) + at + position


def _columns_that_fit(cells: list[list[str]], rows: Sequence[str], cols: Sequence[str], width: int) -> int:
    first = max((len(name) for name in rows), default=0)
    return max(1, min(len(cols), (width - 2 - first) // (_cell(cells, cols) + 2)))


def _cell(cells: list[list[str]], cols: Sequence[str]) -> int:
    return max([*(min(len(name), _WIDEST) for name in cols), *(len(cell) for row in cells for cell in row)], default=0)


def _cells(values: list[list[float]], digits: int, zero_is_hidden: bool) -> list[list[str]]:
    return [
        ["·" if number == -math.inf or (zero_is_hidden and not number) else _number(number, digits) for number in row]
        for row in values
    ]


def _table(cells: list[list[str]], rows: Sequence[str], cols: Sequence[str], even: bool = True) -> str:
    """even: all columns of numbers have the same width."""
    wide = _cell(cells, cols)
    heading = ["", *(short_label(name, wide).rjust(wide if even else 0) for name in cols)]
    lines = [[name, *row] for name, row in zip(rows, cells, strict=True)]
    return text_table(heading, lines, None, words=1)


def _number(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.lstrip("-")


def heads_of(step: Step) -> int:
    """How many matrices this step has; 1 where heads are not told apart."""
    value = step.value[0] if step.value.dim() > 2 else step.value  # the ladder's first rung has no batch
    return 1 if value.dim() < 3 else value.shape[1 if re.sub(r" \d+$", "", step.name) in _TOKENS_FIRST else 0]


def belongs_to_a_head(step: Step) -> bool:
    """Is the matrix of this step another for each head?"""
    return heads_of(step) > 1 or step.name in _HEADS_JOINED


def matrix_of(step: Step, head: int, text: int = 0) -> Tensor:
    """The matrix of one head and one text; where heads or texts are not told apart, there is one for all."""
    value = step.value[text] if step.value.dim() > 2 else step.value
    if value.dim() == 3:
        value = value[:, head] if re.sub(r" \d+$", "", step.name) in _TOKENS_FIRST else value[head]
    return value


def step_matrix(
    step: Step, tokens: Sequence[str], head: int, heads: int, width: int = 80, digits: int = 2
) -> tuple[str, str]:
    """The matrix of one head as a table, and a legend, both at most `width` columns wide.

    tokens: their labels. head, heads: which head of how many. Of queries, keys, values and concat, which hold all heads
    side by side, the channels of this head are shown; of x and out, which belong to no head, the first channels.
    """
    value = matrix_of(step, head)
    if step.name in MATRICES:
        table = weights_table(value, tokens, tokens, width, digits, zero_is_hidden=step.name in ("weights", "dropout"))
        legend = "Row: the token that looks, its query. Column: the token it looks at, its key."
        hidden = "· is hidden: no token may look at later ones." if "·" in table else ""
        meaning = f"{_MEANINGS.get(step.name, '')} {hidden}".strip()
        return table, _lines(width, legend, meaning, marks_legend(tokens))
    channels = value.shape[1]
    share = channels // heads if step.name in _HEADS_JOINED and heads > 1 else 0
    first, last = (head * share, (head + 1) * share) if share else (0, channels)
    table = channels_table(value[:, first:last], tokens, first, width, digits)
    of_head = f"; {first} to {last - 1} are those of head {head}" if share else ""
    legend = f"Row: a token. Column: one of its {channels} numbers, its channels{of_head}."
    return table, _lines(width, legend, marks_legend(tokens))


def _lines(width: int, *parts: str) -> str:
    return "\n".join(wrapped(part, width) for part in parts if part)
