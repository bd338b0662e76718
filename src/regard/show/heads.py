"""Heads in a terminal: roles in colour, many module names in one line."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

_COLOURS = {
    "induction": "magenta",
    "duplicate": "magenta",
    "previous token": "green",
    "self": "green",
    "first token": "yellow",
    "position": "cyan",
    "local": "cyan",
}


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
