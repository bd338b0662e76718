"""Every mistake that check names, in one list: those that are simulated, and those that are tried, raised or read.

The table in docs/check.md is made from it: python -m benchmarks.check.names docs/check.md
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from regard.mistakes.search import MISTAKES
from regard.school.check import check, own_file  # what they import makes the known mistakes
from regard.school.check.verdict import KNOWN

MODULES = (check, own_file)
START, END = "<!-- mistakes -->\n", "<!-- end of mistakes -->\n"


@dataclass(frozen=True)
class ListedMistake:
    """A name, why it is wrong, and what it can be: a mistake, a warning, or either."""

    name: str
    why: str
    kinds: tuple[str, ...]


def mistake_names() -> list[ListedMistake]:
    """All of them, each name once: first those that are simulated, in the order of the formula's steps.

    >>> [one.name for one in mistake_names()][:2]
    ['embedding split before projection', 'transposed weights']
    """
    words = [(one.family or one.name, one.why, "mistake") for one in MISTAKES]
    words += sorted((one.name, one.why, "warning" if one.is_warning else "mistake") for one in KNOWN)
    names = dict.fromkeys(name for name, _, _ in words)
    return [
        ListedMistake(
            name,
            " ".join(dict.fromkeys(why for one, why, _ in words if one == name and why)),
            tuple(sorted({kind for one, _, kind in words if one == name})),
        )
        for name in names
    ]


def mistakes_table() -> str:
    """The list in Markdown."""
    rows = [f"| {one.name} | {' or '.join(one.kinds)} | {one.why} |" for one in mistake_names()]
    return "\n".join(["| name | | why |", "| --- | --- | --- |", *rows]) + "\n"


def with_table(page: str) -> str:
    """A page with the table of today between its two marks."""
    return re.sub(f"(?s){START}.*?{END}", lambda _: f"{START}\n{mistakes_table()}\n{END}", page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
