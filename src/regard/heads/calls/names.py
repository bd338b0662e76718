"""Names of modules, many in one line."""

from __future__ import annotations

import re
from collections.abc import Sequence


def names_in_short(names: Sequence[str], width: int = 60) -> str:
    """Many module names in one line; names that differ by a running number are one.

    >>> names_in_short(["h.0.attn", "h.1.attn", "h.2.attn"])
    'h.0–2.attn'
    >>> names_in_short(["encoder.attn", "decoder.attn"])
    'encoder.attn, decoder.attn'
    """
    runs: list[tuple[str, int, int]] = []  # a pattern with {} for the number, its first and its last value
    for name in names:
        if runs and (grown := _grown(runs[-1], name)):
            runs[-1] = grown
        else:
            runs.append((name, -1, -1))
    text = ", ".join(form.replace("{}", f"{low}–{high}") if low >= 0 else form for form, low, high in runs)
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _grown(run: tuple[str, int, int], name: str) -> tuple[str, int, int] | None:
    """The run with this name added, or None where the name does not continue it."""
    form, low, high = run
    if low >= 0:
        return (form, low, high + 1) if form.replace("{}", str(high + 1)) == name else None
    for match in re.finditer(r"\d+", form):
        number = int(match.group())
        if form[: match.start()] + str(number + 1) + form[match.end() :] == name:
            return form[: match.start()] + "{}" + form[match.end() :], number, number + 1
    return None
