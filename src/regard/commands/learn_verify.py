"""What `regard learn verify` and `regard learn status --verify` print: a course, and a certificate, checked."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from regard.school.course.answers import AnswerChecker
from regard.school.course.courses import Course, read_course, read_lessons
from regard.school.drawing.lessons import colored
from regard.show.terminal.table import terminal_width, text_table, wrapped
from regard.support.printable import printable, styled

_SIGNS = {"right": "✓", "changed": "!", "wrong": "✗", "missing": "✗", "unchecked": "?"}


def verify_folders(folders: list[Path]) -> None:
    """Check a course, or exercises alone, and print what is wrong; exit status 1 if anything is."""
    from regard.school.course.verification import LessonReport, verify_course, verify_lesson

    is_course = len(folders) == 1 and not (folders[0] / "exercise.py").exists()
    course = read_course(folders[0]) if is_course else read_lessons(folders)
    general = verify_course(course) if is_course else []
    reports: list[LessonReport] = []
    with AnswerChecker() as checker:
        for lesson in course.lessons:
            if sys.stderr.isatty():
                _over(f"  {lesson.number} of {len(course.lessons)}: {lesson.name}")
            reports.append(verify_lesson(lesson, checker))
    if sys.stderr.isatty():
        _over("")
    width = terminal_width()
    rows = [
        ["✗" if one.faults else "✓", one.name, str(one.wrong), str(one.ways), f"{one.seconds:.2f} s"] for one in reports
    ]
    names = ["", "exercise", "wrong answers named", "other ways", "longest check"]
    typer.echo(f"\n{colored(text_table(names, rows, width, words=2, cut={1: 12}))}", file=styled(sys.stdout))
    faults = [(course.folder.name, one) for one in general]
    faults += [(report.name, one) for report in reports for one in report.faults]
    if faults:
        typer.echo("\n" + "\n".join(wrapped(f"✗ {name}: {one}", width, "  ", "    ") for name, one in faults))
    named, ways = sum(one.wrong for one in reports), sum(one.ways for one in reports)
    told = f"{len(reports)} exercises, {named} wrong answers named, {ways} other ways"
    typer.echo(f"\n  {told}: {f'{len(faults)} faults' if faults else 'nothing is wrong'}.\n")
    raise typer.Exit(1 if faults else 0)


def verify_certificate(file: Path, answers: Path, course: Course, unprotected: bool) -> None:
    """Check a certificate and run its answers again, in the sandbox or not; exit status 1 unless all are right."""
    from regard.school.course.certificate import read_certificate, recheck
    from regard.school.sandbox.protection import ProtectionMissing

    certificate = read_certificate(file)
    if not answers.is_dir():
        raise ValueError(f"--answers {answers} is no folder; give the one with the learner's files")
    try:
        with AnswerChecker(confined=not unprotected) as checker:
            results = recheck(certificate, answers, course, checker)
    except ProtectionMissing as missing:
        raise ValueError(f"{missing}. To run answers without it: --unprotected") from None
    width = terminal_width()
    claimed = {one["name"]: one for one in certificate["exercises"]}
    rows = [[_SIGNS[one.status], one.name, _used(claimed[one.name]), one.says] for one in results]
    typer.echo(f"\n  {file.name}: signature and course fit; made {certificate['date']}.\n")
    if rows:
        table = text_table(["", "exercise", "used", "run again"], rows, width, cut={1: 8, 2: 6, 3: 16})
        typer.echo(colored(table), file=styled(sys.stdout))
    right = sum(one.status == "right" for one in results)
    typer.echo(f"\n  {right} of {len(results)} answers that it calls done were run again and are right.")
    if not unprotected and any(one.status == "unchecked" for one in results):
        typer.echo(wrapped("To run the others, if you trust who wrote them: add --unprotected", width))
    typer.echo()
    raise typer.Exit(0 if right == len(results) else 1)


def _used(exercise: dict[str, object]) -> str:
    words = [f"{exercise['hints']} hint{'s' * (exercise['hints'] != 1)}"] if exercise["hints"] else []
    return ", ".join([*words, *(["solution seen"] if exercise["solution_seen"] else [])])


def _over(text: str) -> None:
    """Write a line over the one before, on stderr."""
    typer.echo(f"\r\x1b[K{printable(text)}", nl=False, file=styled(sys.stderr))
