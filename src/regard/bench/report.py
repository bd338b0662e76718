"""How results leave a benchmark: lines on stdout, notes below tables, and a JSON file."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

from regard.show.terminal.table import text_table
from regard.support.files import atomically


def say(text: str) -> None:
    """Print at once, so that the lines on stdout and stderr stay in order."""
    print(text, flush=True)


def wrap(note: str) -> list[str]:
    """A note below a table, at most 78 columns wide."""
    return textwrap.wrap(note, 78, initial_indent="  ", subsequent_indent="    ")


def table_lines(
    head: Sequence[str], columns: Sequence[Sequence[str]], marked: int | None = None, words: int = 1
) -> list[str]:
    """The lines of a table that is given by columns; the first `words` are aligned left.

    >>> print(*table_lines(["who", "ms"], [["we", "they"], ["1.0", "12.5"]], marked=0), sep="|")
      who     ms|→ we     1.0|  they  12.5
    """
    return text_table(head, list(zip(*columns, strict=True)), None, words=words, marked=marked).splitlines()


def reason(error: Exception) -> str:
    r"""Why a contender failed, in one short line.

    >>> reason(ValueError("too long\nby far"))
    'ValueError: too long'
    """
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first.strip()}"[:160]


def write_json(path: Path, data: object) -> None:
    """Write a JSON file completely or not at all."""
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
