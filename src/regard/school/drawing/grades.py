"""The grades of a class: a table for a terminal, and one HTML page that opens offline."""

from __future__ import annotations

import html

from regard.school.grading.class_report import ClassReport, Grade
from regard.show.terminal.table import html_table, terminal_width, text_table, wrapped
from regard.support.drawing import as_page, as_text

SIGNS = {"right": "✓", "wrong": "✗", "unchecked": "?"}
WORDS = {"right": "right", "wrong": "wrong", "unchecked": "could not be checked"}
_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;"
    "padding:0 1em}table{border-collapse:collapse;margin:.5em 0 2em}td,th{padding:.25em 1em .25em 0;vertical-align:top;"
    "border-bottom:1px solid #8886}th{font-weight:600}p{margin:.5em 0}"
)


@as_text.register
def _text(report: ClassReport, width: int | None = None) -> str:
    width = terminal_width() if width is None else width
    rows = [[SIGNS[one.status], one.submission, one.says] for one in report.grades]
    blocks = [text_table(["", "submission", "verdict"], rows, width, cut={1: 12, 2: 20})]
    if report.mistakes:
        counts = [[str(len(who)), name] for name, who in report.mistakes]
        blocks.append(text_table(["times", "mistake"], counts, width, cut={1: 20}))
    blocks.append(wrapped(_counts(report), width))
    return "\n\n".join(blocks)


@as_page.register
def _page(report: ClassReport, title: str = "") -> str:
    title = html.escape(title or "Grades")
    rows = [[SIGNS[one.status], one.submission, one.says, _details(one)] for one in report.grades]
    counts = [[str(len(who)), name, ", ".join(who)] for name, who in report.mistakes]
    tables = html_table(_counts(report), ["", "submission", "verdict", "why"], rows, left=True)
    if counts:
        tables += html_table("Mistakes, the most frequent first", ["times", "mistake", "who"], counts, left=True)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{tables}</body></html>\n"
    )


def _details(grade: Grade) -> str:
    """What was seen, and the lines."""
    return " ".join(f"{one.says}{f' Line {one.line}: {one.code}' if one.code else ''}" for one in grade.mistakes)


def _counts(report: ClassReport) -> str:
    total = len(report.grades)
    counts = [f"{report.count(status)} {word}" for status, word in WORDS.items() if report.count(status)]
    missing = report.protection.missing
    unprotected = f" Without protection: {', '.join(missing)}." if missing else ""
    return f"{total} submission{'s' * (total != 1)}: {', '.join(counts)}.{unprotected}"
