"""Wrong answers to an exercise: wrong.txt, each an edit of solution.py below the name that the check must give it.

    # missing root

    @ no_root
    - scores / head_dim**0.5
    + scores / head_dim

The lines with `-` are replaced by those with `+`, where they occur first; without `+`, they are deleted. Blank lines
separate the edits of one answer. Without `-`, the lines with `+` are the whole answer. What comes before the first `#`
is for people. The file is for authors: it is not installed with our course.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FILE = "wrong.txt"


@dataclass(frozen=True)
class WrongAnswer:
    """A wrong answer: what the author calls it, the name that the check must give it, and its text."""

    name: str
    expected: str
    source: str


def read_wrong_answers(text: str, solution: str) -> list[WrongAnswer]:
    r"""The wrong answers in a text; ValueError if it is not written as above, or an edit does not fit the solution.

    >>> read_wrong_answers("# not doubled\n\n@ same\n- x + x\n+ x\n", "def twice(x):\n    return x + x\n")
    [WrongAnswer(name='same', expected='not doubled', source='def twice(x):\n    return x\n')]
    """
    answers = []
    for section in re.split(r"^#(?: +|$)", text, flags=re.MULTILINE)[1:]:
        expected, *parts = section.split("\n@ ")
        for part in parts:
            name, _, body = part.partition("\n")
            if not expected.strip():
                raise ValueError(f"{FILE}, {name} has no name above it; write a line: # NAME")
            answers.append(WrongAnswer(name.strip(), expected.strip(), _edited(solution, body, f"{FILE}, {name}")))
    return answers


def _edited(source: str, body: str, where: str) -> str:
    edits = list(_edits(body, where))
    if not edits:
        raise ValueError(f"{where}: there is no edit; write lines that begin with - and +")
    for old, new in edits:
        if not old:
            source = new
        elif old in source:
            source = source.replace(old, new, 1)
        else:
            raise ValueError(f"{where}: solution.py does not have: {old.strip()}")
    return source


def _edits(body: str, where: str) -> Iterator[tuple[str, str]]:
    """Pairs of a text and what it becomes."""
    for block in body.split("\n\n"):
        lines = block.strip("\n").splitlines()
        if stray := [line for line in lines if line[:2] not in ("-", "- ", "+", "+ ")]:
            raise ValueError(f"{where}: {stray[0]!r} begins with neither - nor +")
        old, new = ([line[2:] for line in lines if line[0] == sign] for sign in "-+")
        end = "" if old and new else "\n"  # whole lines are deleted, or written
        if lines:
            yield "\n".join(old) + end * bool(old), "\n".join(new) + end * bool(new)
