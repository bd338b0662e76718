"""`regard learn class`: where everybody in a class is, and which mistakes are common."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import typer

from regard.commands.learning.verifying import write_over
from regard.commands.shared.files import check_output
from regard.school.course.answers import AnswerChecker
from regard.school.course.class_overview import ClassMember, read_class, with_mistakes
from regard.school.course.courses import Course
from regard.school.drawing.class_overviews import class_csv, class_json, class_page, class_text
from regard.school.sandbox.protection import ProtectionMissing
from regard.show.terminal.table import terminal_width
from regard.support.files import atomically
from regard.support.printable import styled

WRITERS = {".csv": class_csv, ".html": class_page, ".json": class_json}


def show_class(folder: Path, course: Course, output: str | None, *, runs: bool, unprotected: bool) -> None:
    """Print or write the overview of a class."""
    check_output(output, tuple(WRITERS), "the overview of a class is CSV, HTML or JSON")
    members = read_class(folder, course)
    if runs:
        try:
            members = _with_mistakes(members, course, unprotected)
        except ProtectionMissing as missing:
            raise ValueError(f"{missing}. To run answers without it: --unprotected; to run none: --no-run") from None
    if output is None:
        typer.echo(f"\n{class_text(members, course, terminal_width())}\n", file=styled(sys.stdout))
        return
    with atomically(output) as temporary:
        temporary.write_text(WRITERS[Path(output).suffix.lower()](members, course), encoding="utf-8")
    typer.echo(f"  {output}: {len(members)} students")


def _with_mistakes(members: list[ClassMember], course: Course, unprotected: bool) -> list[ClassMember]:
    """Their answers to what they work on, run in one process after the other."""
    result = []
    with AnswerChecker(confined=not unprotected) if any(one.current for one in members) else nullcontext() as checker:
        for number, one in enumerate(members, 1):
            write_over(f"  {number} of {len(members)}: {one.name}")
            result.append(one if checker is None else with_mistakes(one, course, checker))
    write_over("")
    return result
