"""One head on a page: its role, its mean statistics, and where each token looks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from regard.heads.measure.registry import explain_headings, with_headings
from regard.heads.report.views import Head
from regard.show.terminal.marks import MARK
from regard.show.terminal.table import shorten, text_table
from regard.support.tokens import TextTokens

_QUERIES = 20  # the last so many tokens are listed
_KEYS = 4  # with so many of their strongest keys
_WIDEST = 16  # characters of a token
_LEAST = 0.005  # the smallest weight that is listed


def head_page(head: Head, width: int, text: int = 0) -> str:
    """What the head does with one text of the batch, as lines of at most `width` columns."""
    _, _, T, S = head.record.sizes
    lines = [f"  {head.name} · {T} token{'s' * (T != 1)}", ""]
    lines += [*wrapped(str(head.role), width), *means_in_lines(head, width)]
    lines += [*(line for mark in head.marks for line in wrapped(f"{MARK} {mark}", width)), ""]
    keys, weights = (one[text].tolist() for one in head.top(min(_KEYS, S)))
    queries, looked_at = (
        token_labels(side, text, size) for side, size in ((head.query_tokens, T), (head.key_tokens, S))
    )
    rows = [
        [query, strongest(looked_at, where, how_much)]
        for query, where, how_much in zip(queries, keys, weights, strict=True)
    ]
    lines.append(text_table([], rows[-_QUERIES:], width, cut={0: min(8, max(map(len, queries), default=1)), 1: 1}))
    if len(rows) > _QUERIES:
        lines.append(f"  (the last {_QUERIES} of {len(rows)} tokens)")
    return "\n".join([*lines, *marks_below(head.query_tokens, head.key_tokens, text, width)])


def means_in_lines(head: Head, width: int) -> list[str]:
    """The mean statistics of a head by the headings of tables, and what a heading is where Python has another name."""
    means = with_headings(head.summary)
    numbers = "  ".join(f"{name}\xa0{value:.2f}" for name, value in means.items())
    return [line for text in (numbers, *explain_headings(means)) for line in wrapped(text, width)]


def token_labels(texts: Sequence[TextTokens] | None, text: int, size: int) -> list[str]:
    """The labels of the tokens of one text, none too long for a table; numbers where the tokens are unknown."""
    return [str(i) for i in range(size)] if texts is None else [shorten(label, _WIDEST) for label in texts[text].labels]


def strongest(labels: Sequence[str], keys: Sequence[int], weights: Sequence[float], least: float = _LEAST) -> str:
    """Keys with their weights, those of at least `least`.

    >>> strongest(["The", "cat"], keys=[1, 0, -1], weights=[0.9, 0.1, 0.0])
    'cat 0.90 · The 0.10'
    """
    return " · ".join(
        f"{labels[key]} {weight:.2f}" for key, weight in zip(keys, weights, strict=True) if key >= 0 and weight >= least
    )


def marks_below(
    queries: Sequence[TextTokens] | None, keys: Sequence[TextTokens] | None, text: int, width: int
) -> list[str]:
    """What the marks in the labels mean."""
    marks = dict.fromkeys(mark for texts in (queries, keys) if texts is not None for mark in texts[text].marks())
    return ["", *(line for mark in marks for line in wrapped(mark, width))] if marks else []


def wrapped(text: str, width: int) -> list[str]:
    """Text as indented lines; a no-break space keeps two words on one line."""
    lines = textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]
