"""Verdicts of a check as text: the mistake, its line, numbers to follow, and why."""

from __future__ import annotations

import re
from pathlib import Path

from torch import Tensor

from regard.school.check.verdict import Example, Finding, Verdict
from regard.show.terminal.table import shorten, terminal_width, wrapped
from regard.support.drawing import as_text

_KEPT = "\xa0"  # in place of a space at which no line is broken


@as_text.register
def _text(verdict: Verdict, width: int | None = None) -> str:
    width = terminal_width() if width is None else width
    blocks = [_heading(verdict, width)]
    several = len(verdict.mistakes) > 1
    for number, finding in enumerate(verdict.mistakes, 1):
        if several:
            blocks.append(wrapped(f"{number}. {finding.name or 'unknown mistake'}", width, "    "))
        blocks += _details(finding, verdict, width, says=True)
    blocks += [_wrapped(note, width, "    ") for note in verdict.notes]
    if verdict.sizes and verdict.mistakes:
        sizes = ", ".join(f"{name}={value}" for name, value in verdict.sizes.items())
        blocks.append(wrapped(f"Checked as {verdict.task}; built with {sizes}.", width, "    "))
    for finding in verdict.warnings:
        warning = _wrapped(f"! {finding.name}: {finding.says}", width, "  ", "    ")
        blocks += [warning, *_details(finding, verdict, width)]
    return "\n\n".join(blocks)


def _heading(verdict: Verdict, width: int) -> str:
    if verdict.problem:
        return _wrapped(f"? {verdict.name} could not be checked: {verdict.problem}", width, "  ", "    ")
    if verdict.is_right:
        return _wrapped(f"✓ {verdict.name} is right: {verdict.task}", width, "  ", "    ")
    first = verdict.mistakes[0]
    said = first.name or ("unknown mistake" if first.step else "wrong")
    if len(verdict.mistakes) > 1:
        said = f"{len(verdict.mistakes)} mistakes"
    return _wrapped(f"✗ {verdict.name}: {said}", width, "  ", "    ")


def _wrapped(text: str, width: int, indent: str, later: str | None = None) -> str:
    r"""The text in lines that do not break a shape.

    >>> print(_wrapped("It returns a tensor of shape (2, 3, 5).", 34, ""))
    It returns a tensor of shape
    (2, 3, 5).
    """
    together = re.sub(r"(?<=\d)(,| ×) (?=\d)", lambda found: found[1].replace(" ", _KEPT) + _KEPT, text)
    return wrapped(together, width, indent, later).replace(_KEPT, " ")


def _details(finding: Finding, verdict: Verdict, width: int, says: bool = False) -> list[str]:
    blocks = []
    if finding.line:
        place = f"{Path(verdict.file).name}:{finding.line}" if verdict.file else f"line {finding.line}"
        blocks.append(shorten(f"    {place}   {finding.code}", width))
    if says:
        blocks.append(_wrapped(finding.says, width, "    "))
    if finding.example is not None:
        blocks.append(_example(finding.example, width))
    if finding.why:
        blocks.append(_wrapped(finding.why, width, "    "))
    if finding.fix and verdict.shows_fix:
        blocks.append(shorten(f"    Write: {finding.fix}", width))
    return blocks


def _example(example: Example, width: int) -> str:
    """Both tables side by side where they fit, else one below the other."""
    digits = _digits(example)
    seen, expected = _rows(example.seen, digits), _rows(example.expected, digits)
    left = max(len("yours"), *(len(row) for row in seen))
    lines = [_wrapped(example.about, width, "    ")]
    if 6 + left + 4 + max(map(len, expected)) <= width and len(seen) == len(expected):
        lines.append(f"      {'yours':<{left}}    expected")
        lines += [f"      {a:<{left}}    {b}".rstrip() for a, b in zip(seen, expected, strict=True)]
        return "\n".join(lines)
    for word, rows in (("yours", seen), ("expected", expected)):
        lines += [shorten(f"      {word if not i else '':<10}{row}", width) for i, row in enumerate(rows)]
    return "\n".join(lines)


def _digits(example: Example) -> int:
    """As few digits after the point as show that the tables differ; none for whole numbers."""
    tables = (example.seen, example.expected)
    if all(bool(((t == t.round()) | ~t.isfinite()).all()) for t in tables):
        return 0
    return next((n for n in (2, 4, 6) if _rows(tables[0], n) != _rows(tables[1], n)), 9)


def _rows(numbers: Tensor, digits: int) -> list[str]:
    texts = [[_number(float(n), digits) for n in row] for row in numbers]
    size = max((len(text) for row in texts for text in row), default=0)
    return ["  ".join(text.rjust(size) for text in row) for row in texts]


def _number(value: float, digits: int) -> str:
    if value != value or abs(value) == float("inf"):
        return "NaN" if value != value else "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}f}"
    return (text if float(text) else text.removeprefix("-")).replace("-", "−")  # no negative zero
