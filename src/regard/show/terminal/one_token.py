"""One token in every head, as a table: where it looks, and who looks at it."""

from __future__ import annotations

import torch

from regard.heads.report.one_token import TokenInHead, TokenInHeads
from regard.show.terminal.heat_map import marks_below, strongest_in_words, token_labels
from regard.show.terminal.table import Cell, html_table, terminal_width, text_table, wrapped_lines
from regard.support.drawing import as_html, as_text

_FEW = 16  # heads of a table unless all are asked for
_KEYS, _QUERIES = 3, 1  # the strongest keys of the token, and the query that looks at it most
_LEAST = 0.05  # the smallest weight that is listed
_COLUMNS = ["head", "role", "looks at", "looked at by"]
_ORDER = "Sorted by the largest weight on any token but the first, which many heads look at by default."


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
    for texts, weights, most in ((head.key_tokens, one.weights, _KEYS), (head.query_tokens, others, _QUERIES)):
        largest = weights.topk(min(most, len(weights)))
        labels = token_labels(texts, token.text, len(weights))
        row.append(strongest_in_words(labels, largest.indices.tolist(), largest.values.tolist(), _LEAST))
    return row
