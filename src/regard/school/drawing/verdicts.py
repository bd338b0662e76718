"""Verdicts of a check as text: the mistake, its line, numbers to follow, and why. And the grades of a class."""

from __future__ import annotations

import html
import re
from pathlib import Path

from torch import Tensor

from regard.school.check.verdict import Example, Finding, Verdict
from regard.school.grading.class_report import ClassReport, Grade, points_text
from regard.show.terminal.table import html_table, shorten, terminal_width, text_table, wrapped
from regard.support.drawing import as_page, as_text

_KEPT = "\xa0"  # in place of a space at which no line is broken
SIGNS = {"right": "✓", "wrong": "✗", "unchecked": "?", "missing": "–"}
MOST_PAIRS = 20  # similar ones that are listed; the others are in the files
WORDS = {"right": "right", "wrong": "wrong", "unchecked": "could not be checked"}
_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;"
    "padding:0 1em}table{border-collapse:collapse;margin:.5em 0 2em}td,th{padding:.25em 1em .25em 0;vertical-align:top;"
    "border-bottom:1px solid #8886}th{font-weight:600}p{margin:.5em 0}"
)


@as_text.register
def _text(verdict: Verdict, width: int | None = None) -> str:
    width = terminal_width() if width is None else width
    mistakes = verdict.mistakes
    blocks = [_wrapped(_heading(verdict), width, "  ", "    ")]
    for number, finding in enumerate(mistakes, 1):
        if len(mistakes) > 1:
            blocks.append(wrapped(f"{number}. {finding.name or 'unknown mistake'}", width, "    "))
        blocks += _details(finding, verdict, width, says=True)
    blocks += [_wrapped(note, width, "    ") for note in verdict.notes]
    if verdict.sizes and verdict.mistakes:
        sizes = ", ".join(f"{name}={value}" for name, value in verdict.sizes.items())
        blocks.append(wrapped(f"Checked as {verdict.task}; built with {sizes}.", width, "    "))
    for label, tried in (("Checked", ", ".join(verdict.checked)), ("Not checked", "; ".join(verdict.not_checked))):
        blocks += [_wrapped(f"{label}: {tried}.", width, "    ")] if tried and not mistakes else []
    for finding in verdict.warnings:
        warning = _wrapped(f"! {finding.name}: {finding.says}", width, "  ", "    ")
        blocks += [warning, *_details(finding, verdict, width)]
    return "\n\n".join(blocks)


def _heading(verdict: Verdict) -> str:
    mistakes = verdict.mistakes
    if verdict.problem:
        return f"? {verdict.name} could not be checked: {verdict.problem}"
    if not mistakes:
        return f"✓ {verdict.name} is right: {verdict.task}"
    if len(mistakes) > 1:
        return f"✗ {verdict.name}: {len(mistakes)} mistakes"
    return f"✗ {verdict.name}: {mistakes[0].name or ('unknown mistake' if mistakes[0].step else 'wrong')}"


def _wrapped(text: str, width: int, indent: str, later: str | None = None) -> str:
    """The text in lines that do not break a shape, as (2, 3, 5) or 2 × 3 × 5."""
    together = re.sub(r"(?<=\d)(,| ×) (?=\d)", lambda found: found[1].replace(" ", _KEPT) + _KEPT, text)
    return wrapped(together, width, indent, later).replace(_KEPT, " ")


def _details(finding: Finding, verdict: Verdict, width: int, says: bool = False) -> list[str]:
    blocks = []
    if finding.line:
        name = Path(verdict.file).name
        place = f"{name}:{finding.line}" if name and not finding.cell else f"{name}, {finding.place}".lstrip(", ")
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
    tables = (example.seen, example.expected)
    digits = 0
    if not all(bool(((t == t.round()) | ~t.isfinite()).all()) for t in tables):  # as few as show that they differ
        digits = next((n for n in (2, 4, 6) if _rows(tables[0], n) != _rows(tables[1], n)), 9)
    seen, expected = (_rows(t, digits) for t in tables)
    left = max(len("yours"), *(len(row) for row in seen))
    lines = [_wrapped(example.about, width, "    ")]
    if 6 + left + 4 + max(map(len, expected)) <= width and len(seen) == len(expected):
        lines.append(f"      {'yours':<{left}}    expected")
        lines += [f"      {a:<{left}}    {b}".rstrip() for a, b in zip(seen, expected, strict=True)]
        return "\n".join(lines)
    for word, rows in (("yours", seen), ("expected", expected)):
        lines += [shorten(f"      {word if not i else '':<10}{row}", width) for i, row in enumerate(rows)]
    return "\n".join(lines)


def _rows(numbers: Tensor, digits: int) -> list[str]:
    texts = [[_number(float(n), digits) for n in row] for row in numbers]
    size = max((len(text) for row in texts for text in row), default=0)
    return ["  ".join(text.rjust(size) for text in row) for row in texts]


def _number(value: float, digits: int) -> str:
    if value != value or abs(value) == float("inf"):
        return "NaN" if value != value else "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}f}"
    return (text if float(text) else text.removeprefix("-")).replace("-", "−")  # no negative zero


@as_text.register
def _class_text(report: ClassReport, width: int | None = None) -> str:
    width = terminal_width() if width is None else width
    rows = [[SIGNS[one.status], *_who_and_points(one, report), one.says] for one in report.grades]
    last = len(_columns(report))
    blocks = [text_table(["", *_columns(report), "verdict"], rows, width, words=last + 2, cut={1: 12, last + 1: 20})]
    if report.mistakes:
        counts = [[str(len(who)), name] for name, who in report.mistakes]
        blocks.append(text_table(["times", "mistake"], counts, width, cut={1: 20}))
    if report.similar:
        pairs = [[f"{one.percent} %", one.one, one.other] for one in report.similar[:MOST_PAIRS]]
        more = len(report.similar) - MOST_PAIRS
        table = text_table(["similar", "look yourself", ""], pairs, width, cut={1: 12, 2: 12})
        blocks.append(table + (f"\n  … and {more} more pairs" if more > 0 else ""))
    blocks.append(wrapped(_counts(report), width))
    return "\n\n".join(blocks)


def _columns(report: ClassReport) -> list[str]:
    return ["submission", *["points"] * report.has_points]


def _who_and_points(one: Grade, report: ClassReport) -> list[str]:
    by_hand = "*" if one.override else ""
    points = f"{points_text(one.points)}{by_hand} of {points_text(one.of)}" if one.points is not None else ""
    return [one.submission or one.student, *[points] * report.has_points]


@as_page.register
def _class_page(report: ClassReport, title: str = "") -> str:
    title = html.escape(title or "Grades")
    rows = []
    for one in report.grades:
        why = [f"{made.says}{f' Line {made.line}: {made.code}' if made.code else ''}" for made in one.mistakes]
        rows.append([SIGNS[one.status], *_who_and_points(one, report), one.says, " ".join([*why, *_said(one)])])
    counts = [[str(len(who)), name, ", ".join(who)] for name, who in report.mistakes]
    tables = html_table(_counts(report), ["", *_columns(report), "verdict", "why"], rows, left=True)
    if counts:
        tables += html_table("Mistakes, the most frequent first", ["times", "mistake", "who"], counts, left=True)
    if report.similar:
        pairs = [[f"{one.percent} %", one.one, one.other] for one in report.similar]
        tables += html_table("Similar code, look yourself", ["similar", "one", "other"], pairs, left=True)
    return html_document(title, tables)


def html_document(title: str, body: str) -> str:
    """A page that loads nothing; the title is HTML, too."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{body}</body></html>\n"
    )


def _said(one: Grade) -> list[str]:
    """What a table says beside the verdict: notes, and what was changed by hand."""
    return [
        f"{note.removesuffix('.')}."
        for note in (*one.notes, *([f"Changed by hand: {one.override}"] if one.override else []))
    ]


def _counts(report: ClassReport) -> str:
    total, absent = len(report.grades) - report.count("missing"), report.count("missing")
    counts = [f"{report.count(status)} {word}" for status, word in WORDS.items() if report.count(status)]
    says = [f"{total} submission{'s' * (total != 1)}: {', '.join(counts)}."]
    if absent:
        says.append(f"{absent} student{'s' * (absent != 1)} handed in nothing.")
    if any(one.override for one in report.grades):
        says.append("* changed by hand.")
    if report.ignored:
        says.append(f"Ignored: {', '.join(report.ignored)}.")
    if missing := report.protection.missing:
        says.append(f"Without protection: {', '.join(missing)}.")
    return " ".join(says)
