"""`regard learn verify` and `regard learn status --verify`: check a course, or the answers of a certificate."""

import sys
from pathlib import Path

import typer

from regard.school.course.answers import AnswerChecker
from regard.school.course.courses import Course, read_course, read_lessons
from regard.school.drawing.lessons import colored, rechecked_table, verified_course
from regard.show.terminal.table import terminal_width, wrapped
from regard.support.printable import printable, styled


def verify_folders(folders: list[Path]) -> None:
    """Check a course, or exercises alone, and print what is wrong; exit status 1 if anything is."""
    from regard.school.course.verification import verify_course, verify_lesson

    is_course = len(folders) == 1 and not (folders[0] / "exercise.py").exists()
    course = read_course(folders[0]) if is_course else read_lessons(folders)
    general = verify_course(course) if is_course else []
    reports = []
    with AnswerChecker() as checker:
        for lesson in course.lessons:
            write_over(f"  {lesson.number} of {len(course.lessons)}: {lesson.name}")
            reports.append(verify_lesson(lesson, checker))
    write_over("")
    faults = [(course.folder.name, one) for one in general]
    faults += [(report.name, one) for report in reports for one in report.faults]
    typer.echo(f"\n{colored(verified_course(reports, faults, terminal_width()))}\n", file=styled(sys.stdout))
    raise typer.Exit(1 if faults else 0)


def verify_certificate(file: Path, answers: Path, course: Course, unprotected: bool) -> None:
    """Run the answers of a certificate again, in the sandbox or not; exit status 1 unless all that run are right."""
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
    typer.echo(f"\n  {file.name}: for this course; made {certificate['date']}.\n")
    if results:
        typer.echo(colored(rechecked_table(certificate, results, width)), file=styled(sys.stdout))
    right = sum(one.status == "right" for one in results)
    hidden = sum(one.needs_regard for one in results)
    typer.echo(f"\n  {right} of {len(results)} answers that it calls done were run again and are right.")
    if not unprotected and any(one.status == "unchecked" for one in results):
        typer.echo(wrapped("To run the others, if you trust who wrote them: add --unprotected", width))
    typer.echo()
    raise typer.Exit(0 if right + hidden == len(results) else 1)


def write_over(text: str) -> None:
    """Write a line over the one before, on stderr; without a terminal, nothing."""
    if sys.stderr.isatty():
        typer.echo(f"\r\x1b[K{printable(text)}", nl=False, file=styled(sys.stderr))
