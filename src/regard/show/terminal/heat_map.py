"""A head as a heat map in a terminal: a row for each token that looks, a column for each token it looks at.

And one token in every head, as a table: where it looks, and who looks at it.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.heads.measure.registry import explain_headings, with_headings
from regard.heads.report.listings import TokenInHead, TokenInHeads
from regard.heads.report.views import Head
from regard.show.terminal.heads import SHARES
from regard.show.terminal.table import (
    Cell,
    html_table,
    shorten,
    terminal_width,
    text_columns,
    text_table,
    wrapped_lines,
)
from regard.support.drawing import as_html, as_text
from regard.support.tokens import TextTokens

_ROWS = 40  # the last so many tokens are drawn
_KEYS = 24  # columns that the strongest keys of a row need at least
_LEAST = 0.05  # the smallest weight that is written beside its row
_LONGEST = 16  # characters of a token
_LEVELS = "·▁▂▃▄▅▆▇█"
_SUMS = "each is a mean over the tokens that have one, so sums may exceed 1"
_FEW = 16  # heads of a table of one token unless all are asked for
_COLUMNS = ["head", "role", "looks at", "looked at by"]
_ORDER = "Sorted by the largest weight on any token but the first, which many heads look at by default."
_LABELLED, _WIDEST = 4, 6  # columns of a cell from which its key is named above it, and at most


def head_picture(head: Head, width: int, text: int = 0) -> str:
    """A head in words and as a heat map: its role with the evidence, its mean statistics, where each token looks."""
    heading = f"head {head.layer}.{head.head} · {head.role.name} · {head.name}"
    evidence = str(head.role).removeprefix(f"{head.role.name}: ")
    lines = [*wrapped_lines(heading, width), *wrapped_lines(evidence, width), *means_in_lines(head, width), ""]
    return "\n".join([*lines, heat_map(head, width, text)])


def heat_map(head: Head, width: int, text: int = 0) -> str:
    """The weights of one text as bars, and beside each row its strongest keys, in lines of at most `width` columns.

    A key that the mask hides has no bar. Where there are more keys than columns, a column is several keys and its bar
    their sum.
    """
    _, _, T, S = head.record.sizes
    queries, keys = (token_labels(side, text, size) for side, size in ((head.query_tokens, T), (head.key_tokens, S)))
    first = max(0, T - _ROWS)
    weights = head.weights(rows=slice(first, T))[text].cpu()
    visible = head.visible(rows=slice(first, T))[text].cpu()
    label = min(max(map(text_columns, queries[first:]), default=1), 16)
    room = width - label - 4 - _KEYS
    cell = max(1, min(_WIDEST, room // max(S, 1)))
    columns = min(S, max(room, 8)) if cell == 1 else S
    weights, visible = _pooled(weights, columns), _pooled(visible.float(), columns) > 0
    lines = []
    if cell >= _LABELLED:
        lines.append(" " * (label + 4) + "".join(_padded(shorten(key, cell - 1), cell) for key in keys).rstrip())
    top_keys, top_weights = (one[text, first:].tolist() for one in head.top(min(3, S)))
    for i, name in enumerate(queries[first:]):
        cells = zip(weights[i].tolist(), visible[i].tolist(), strict=True)
        bars = "".join((_bar(weight) if seen else " ").ljust(cell) for weight, seen in cells)
        row = f"  {_padded(shorten(name, label), -label)}  {bars}  "
        told = _fitting(strongest_in_words(keys, top_keys[i], top_weights[i], _LEAST), width - text_columns(row))
        lines.append((row + told).rstrip())
    noun = "position" if head.query_tokens is None else "token"
    if first:
        lines.append(f"  (the last {_ROWS} of {T} {noun}s)")
    scale = " ".join(f"{_bar(weight)}\xa0{weight:g}" for weight in (0.0, 0.1, 0.25, 0.5, 1.0))  # · is near 0, █ is 1
    lines += ["", *wrapped_lines(f"A row is a {noun}; its bars add up to 1: {scale}", width)]
    if head.record.across:
        lines.append("  Columns are of another text than rows: this is cross-attention.")
    if columns < S:
        lines.append(f"  Each column is {_sizes(S, columns)} {noun}s.")
    return "\n".join([*lines, *marks_below(head, text, width)])


def means_in_lines(head: Head, width: int) -> list[str]:
    """The mean statistics of a head by the headings of tables, and what a heading is where Python has another name."""
    means = with_headings(head.summary)
    numbers = "  ".join(f"{name}\xa0{value:.2f}" for name, value in means.items())
    above_one = sum(value for name, value in means.items() if name in SHARES and not math.isnan(value)) > 1.005
    notes = [*explain_headings(means), *[_SUMS] * above_one]
    return [line for text in (numbers, *notes) for line in wrapped_lines(text, width)]


def token_labels(texts: Sequence[TextTokens] | None, text: int, size: int) -> list[str]:
    """The labels of the tokens of one text, none too long for a table; numbers where the tokens are unknown."""
    if texts is None:
        return [str(i) for i in range(size)]
    return [shorten(label, _LONGEST) for label in texts[text].labels]


def strongest_in_words(labels: Sequence[str], keys: Sequence[int], weights: Sequence[float], least: float) -> str:
    """Keys with their weights, those of at least `least`.

    >>> strongest_in_words(["The", "cat"], keys=[1, 0, -1], weights=[0.9, 0.1, 0.0], least=0.05)
    'cat 0.90 · The 0.10'
    """
    shown = [(key, weight) for key, weight in zip(keys, weights, strict=True) if key >= 0 and weight >= least]
    return " · ".join(f"{labels[key]} {weight:.2f}" for key, weight in shown)


def marks_below(head: Head, text: int, width: int) -> list[str]:
    """What the marks in the labels of tokens mean."""
    known = [texts[text] for texts in (head.query_tokens, head.key_tokens) if texts is not None]
    marks = dict.fromkeys(mark for tokens in known for mark in tokens.marks())
    return [line for mark in marks for line in wrapped_lines(mark, width)]


def _bar(weight: float) -> str:
    """A bar as high as the weight; by weight^0.6, so that small weights differ."""
    return _LEVELS[round(min(weight, 1.0) ** 0.6 * (len(_LEVELS) - 1))]  # a damaged file may have more than 1


def _fitting(keys: str, width: int) -> str:
    """As many of the keys as fit, the strongest at least in part.

    >>> _fitting("cat 0.71 · sat 0.18", 19), _fitting("cat 0.71 · sat 0.18", 18)
    ('cat 0.71 · sat 0.18', 'cat 0.71')
    """
    while text_columns(keys) > width and " · " in keys:
        keys = keys.rpartition(" · ")[0]
    return shorten(keys, width)


def _padded(text: str, columns: int) -> str:
    """Text with spaces to so many columns: behind it, or before it where the number is negative.

    >>> _padded("猫", 4), _padded("cat", -5)
    ('猫  ', '  cat')
    """
    space = " " * (abs(columns) - text_columns(text))
    return space + text if columns < 0 else text + space


def _pooled(values: Tensor, columns: int) -> Tensor:
    """Columns added up to so many, which differ in width by at most one."""
    rows, size = values.shape
    if size == columns:
        return values
    place = torch.arange(size) * columns // size
    return torch.zeros(rows, columns, dtype=values.dtype).index_add_(1, place, values)


def _sizes(size: int, columns: int) -> str:
    least, most = size // columns, -(-size // columns)
    return str(least) if least == most else f"{least} or {most}"


@as_text.register
def _token_as_text(
    token: TokenInHeads, width: int | None = None, all: bool = False, more: str = ".table(all=True)"
) -> str:
    """The heads, the most telling first; `more` says how to see those that are left out."""
    width = terminal_width() if width is None else width
    shown = token[:] if all else token[:_FEW]
    rows = [_row(one, token) for one in shown]
    lines = [f"  {_heading(token)}", "", text_table(_COLUMNS, rows, width, words=4, cut={2: 24, 3: 12})]
    if len(shown) < len(token):
        lines.append(f"  … and {len(token) - _FEW} more heads: {more}")
    return "\n".join([*lines, "", *wrapped_lines(_ORDER, width), *marks_below(token[0].head, token.text, width)])


@as_html.register
def _token_as_html(token: TokenInHeads) -> str:
    rows = [_row(one, token) for one in token[:_FEW]]
    more = f"… and {len(token) - _FEW} more heads: .table(all=True). " if len(token) > _FEW else ""
    return html_table(_heading(token), _COLUMNS, rows, more + _ORDER, left=True)


def _heading(token: TokenInHeads) -> str:
    layers = len({one.head.layer for one in token})
    of = f" of text {token.text}" if token[0].head.record.sizes[0] > 1 else ""
    return f"{token.name} · position {token.position}{of} · {len(token)} heads in {layers} layer{'s' * (layers != 1)}"


def _row(one: TokenInHead, token: TokenInHeads) -> list[Cell]:
    head = one.head
    others = one.received.nan_to_num(0.0)
    others = torch.where(torch.arange(len(others), device=others.device) == token.position, 0.0, others)
    row: list[Cell] = [f"{head.layer}.{head.head}", head.role.name]
    for texts, weights, most in ((head.key_tokens, one.weights, 3), (head.query_tokens, others, 1)):
        largest = weights.topk(min(most, len(weights)))
        labels = token_labels(texts, token.text, len(weights))
        row.append(strongest_in_words(labels, largest.indices.tolist(), largest.values.tolist(), _LEAST))
    return row
