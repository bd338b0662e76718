"""One head on a page: its role, its mean statistics, and where each token looks."""

from __future__ import annotations

import textwrap

from regard.heads.views import Head
from regard.show.table import text_table

_QUERIES = 20  # the last so many tokens are listed
_KEYS = 4  # with so many of their strongest keys
_WIDEST = 12  # characters of a token


def head_page(head: Head, tokens: list[str], width: int) -> str:
    """The page as lines of at most `width` columns."""
    means = "  ".join(f"{name}\xa0{value:.2f}" for name, value in head.summary.items() if value == value)
    lines = [f"  {head.name} · {len(tokens)} token{'s' * (len(tokens) != 1)}", ""]
    lines += [*_wrap(str(head.role), width), *_wrap(means, width), ""]
    keys, weights = (one[0].tolist() for one in head.top(min(_KEYS, len(tokens))))
    names = [token_name(token) for token in tokens]
    # In cross-attention the queries are other tokens than the keys; then they are numbered.
    queries = names if len(names) == len(keys) else [str(i) for i in range(len(keys))]
    rows = [
        [query, _strongest(names, where, how_much)]
        for query, where, how_much in zip(queries, keys, weights, strict=True)
    ]
    lines.append(text_table([], rows[-_QUERIES:], width, cut={1: 1}))
    if len(rows) > _QUERIES:
        lines.append(f"  (the last {_QUERIES} of {len(rows)} tokens)")
    return "\n".join(lines)


def token_name(token: str) -> str:
    r"""A token on one line, at most 12 characters: spaces around it are left out, unless there is nothing else.

    >>> token_name(" cat"), token_name("\n"), token_name("\x1b")
    ('cat', '⏎', '�')
    """
    plain = token.strip() or token.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    return "".join(c if c.isprintable() else "�" for c in plain)[:_WIDEST]


def _strongest(names: list[str], keys: list[int], weights: list[float]) -> str:
    return " · ".join(
        f"{names[key] if key < len(names) else key} {weight:.2f}"
        for key, weight in zip(keys, weights, strict=True)
        if key >= 0 and weight >= 0.005
    )


def _wrap(text: str, width: int) -> list[str]:
    lines = textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]  # a name and its number stay on one line
