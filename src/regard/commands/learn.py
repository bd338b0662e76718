"""`regard learn`: a course in the terminal. One file for each exercise, checked whenever it is saved.

Only checking needs torch: lists, hints and the like answer at once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.commands.shared.options import argument, option
from regard.commands.terminal.usage import RegardCommand, RegardGroup
from regard.show.terminal.table import terminal_width
from regard.support.printable import styled

if TYPE_CHECKING:
    from regard.school.course.courses import Course, Lesson
    from regard.school.course.learner import LearnerFolder


class LearnGroup(RegardGroup):
    """Without a command, `regard learn` watches; `--course FOLDER` may stand before the command, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words after `regard learn`."""
        if args[:1] == ["--course"] and args[2:3] and args[2] in self.commands:
            args = [args[2], *args[:2], *args[3:]]
        elif not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["watch", *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


learn = typer.Typer(
    cls=LearnGroup,
    help="Learn attention by exercises that are checked when you save.\n\n"
    "Without a command it continues where you stopped, like watch. The first time: regard learn start",
)

CourseOption = Annotated[
    str | None,
    option(
        "Folder of a course of your own. [default: the course that was started, or ours]", "--course", metavar="FOLDER"
    ),
]
NameArgument = Annotated[
    str | None, argument("Name or number of an exercise. [default: the first that is not done]", metavar="NAME")
]
OneName = Annotated[str, argument("Name or number of an exercise.", metavar="NAME", show_default=False)]


@learn.command(cls=RegardCommand)
def start(
    folder: Annotated[
        str | None,
        argument("Folder for your files; created if needed. [default: attention-course]", metavar="FOLDER"),
    ] = None,
    course: CourseOption = None,
) -> None:
    """Write the exercises into a folder. Existing files are kept."""
    from regard.school.course.learner import default_folder, start_folder
    from regard.school.drawing.lessons import shown_path

    opened = _course(course)
    learner, written = start_folder(default_folder(opened, Path()) if folder is None else Path(folder), opened)
    count, place = len(opened.lessons), shown_path(learner.path)
    kept = f"; {count - len(written)} were there and are as they were" if len(written) < count else ""
    what = f"{place} has all {count} exercises."
    if written:
        what = f"{len(written)} exercise{'s' * (len(written) != 1)} written to {place}{kept}."
    typer.echo(f"\n  {opened.title}\n  {what}\n")
    move = "" if learner.path.resolve() == Path.cwd() else f"cd {place}\n    "
    first = learner.file_of(learner.current() or opened.lessons[0]).name
    typer.echo(f"  Next, in a terminal:\n\n    {move}regard learn\n\n  and open {first} in your editor.\n")


@learn.command(cls=RegardCommand)
def watch(name: NameArgument = None, course: CourseOption = None) -> None:
    """Check the exercise whenever you save its file.

    Without a terminal, it is checked once. Exit status then: 0 right, 1 wrong, 2 could not be checked.
    """
    folder = _folder(course)
    if name is None and folder.current() is None and sys.stdin.isatty() and sys.stdout.isatty():
        _show_status(folder)
    else:
        _watch_or_check(folder, _lesson(folder, name))


@learn.command(cls=RegardCommand)
def run(name: NameArgument = None, course: CourseOption = None) -> None:
    """Check an exercise once.

    Exit status: 0 right, 1 wrong, 2 could not be checked.
    """
    folder = _folder(course)
    _check_once(folder, _lesson(folder, name))


@learn.command(cls=RegardCommand)
def hint(name: NameArgument = None, course: CourseOption = None) -> None:
    """Show the next hint: where, why, almost. Hints are counted."""
    from regard.school.drawing.lessons import hints_text

    folder = _folder(course)
    lesson = _lesson(folder, name)
    before = folder.progress.record(lesson.name).hints
    hints = folder.next_hint(lesson)
    typer.echo(f"\n{hints_text(lesson, hints, terminal_width())}\n")
    if before == len(hints) or not hints:
        typer.echo("  There are no more hints.")
        typer.echo(f"  The solution: regard learn solution {lesson.name} --give-up\n")
    else:
        typer.echo(f"  Then save {folder.file_of(lesson).name}, or: regard learn run {lesson.name}\n")


@learn.command("list", cls=RegardCommand)
def list_lessons(course: CourseOption = None) -> None:
    """List the exercises, and which are done."""
    from regard.school.drawing.lessons import colored, lesson_list

    typer.echo(f"\n{colored(lesson_list(_folder(course), terminal_width()))}\n", file=styled(sys.stdout))


@learn.command(cls=RegardCommand)
def reset(
    name: OneName,
    yes: Annotated[bool, option("Do not ask for confirmation.", "--yes", "-y")] = False,
    course: CourseOption = None,
) -> None:
    """Restore the original file of an exercise. Your file is kept under another name."""
    from regard.school.drawing.lessons import shown_path

    folder = _folder(course)
    lesson = folder.course.lesson(name)
    path = shown_path(folder.file_of(lesson))
    if not yes:
        typer.confirm(f"  Start {path} again? Your file is kept as {path}.old-…", abort=True)
    old = folder.reset(lesson)
    kept = f" Your old file: {shown_path(old)}." if old is not None else ""
    typer.echo(f"  {path} is as at the beginning.{kept} Go on: regard learn")


@learn.command(cls=RegardCommand)
def status(
    as_json: Annotated[bool, option("Print a certificate of progress, as JSON.", "--json")] = False,
    verify: Annotated[
        str | None, option("Verify a certificate by running its answers again. [default: off]", metavar="FILE")
    ] = None,
    answers: Annotated[
        str | None, option("With --verify: folder of the learner's files. [default: here]", metavar="FOLDER")
    ] = None,
    unprotected: Annotated[bool, option("With --verify: run answers outside of the sandbox.", "--unprotected")] = False,
    course: CourseOption = None,
) -> None:
    """Show your progress.

    With --verify, exit status: 0 everything that the certificate calls done and that can run is right, 1 it is not.
    """
    if verify is not None:
        from regard.commands.learning.verifying import verify_certificate

        verify_certificate(Path(verify), Path(answers or "."), _course(course), unprotected)
        return
    if answers is not None or unprotected:
        raise ValueError("--answers and --unprotected are for --verify FILE; give the certificate, too")
    folder = _folder(course)
    if not as_json:
        _show_status(folder)
        return
    from regard.school.course.certificate import make_certificate

    typer.echo(json.dumps(make_certificate(folder), indent=2, ensure_ascii=False))


@learn.command(cls=RegardCommand)
def verify(
    folders: Annotated[
        list[str] | None, argument("Courses, or single exercises. [default: our course]", metavar="FOLDER")
    ] = None,
) -> None:
    """For authors: check the exercises of a course.

    An unsolved exercise must fail, its solution must pass, and a wrong answer must get the right name.
    Exit status: 0 all is well, 1 something is wrong.
    """
    from regard.commands.learning.verifying import verify_folders
    from regard.school.course.courses import OWN_COURSE

    verify_folders([Path(one) for one in folders or [str(OWN_COURSE)]])


@learn.command(cls=RegardCommand)
def review(course: CourseOption = None) -> None:
    """Repeat exercises with new numbers.

    Each comes back 1, 3, 7 and 21 days after it was done.
    """
    from regard.school.course.review import next_date, note_reviews, start_review

    folder = _folder(course)
    note_reviews(folder)
    due = start_review(folder)
    if due is None:
        date = next_date(folder)
        more = f"The next is due on {date}." if date else "Exercises that are done are asked again after a day."
        typer.echo(f"\n  Nothing is due for review. {more}\n")
        return
    try:
        _watch_or_check(due, due.current() or due.course.lessons[0])
    finally:
        note_reviews(folder)


@learn.command("class", cls=RegardCommand)
def learners_of_a_class(
    folder: Annotated[str, argument("Folder with a folder for each student.", metavar="FOLDER", show_default=False)],
    output: Annotated[
        str | None,
        option("File to write: .csv, .html or .json. [default: print a table]", "-o", "--output", metavar="FILE"),
    ] = None,
    no_run: Annotated[bool, option("Do not run the unfinished answers of students.", "--no-run")] = False,
    unprotected: Annotated[bool, option("Run answers outside of the sandbox.", "--unprotected")] = False,
    course: CourseOption = None,
) -> None:
    """For teachers: show the progress of a class.

    Also shows which mistakes are common.
    """
    from regard.commands.learning.class_table import show_class

    if no_run and unprotected:
        raise ValueError("--unprotected is for running answers, and --no-run runs none; leave one out")
    show_class(Path(folder), _course(course), output, runs=not no_run, unprotected=unprotected)


@learn.command(cls=RegardCommand)
def solution(
    name: OneName,
    give_up: Annotated[bool, option("Show it before the exercise is done. This is recorded.", "--give-up")] = False,
    course: CourseOption = None,
) -> None:
    """Show the solution of an exercise that is done."""
    folder = _folder(course)
    lesson = folder.course.lesson(name)
    record = folder.progress.record(lesson.name)
    if not record.is_done and not give_up:
        left = len(lesson.hints) - record.hints
        some = f"{left} hint{'s' * (left != 1)} left: regard learn hint {lesson.name}"
        hints = some if left > 0 else "no hint is left"
        raise ValueError(f"{lesson.name} is not done yet ({hints}); to see its solution anyway, add --give-up")
    folder.note_solution(lesson)
    typer.echo(lesson.text("solution.py"), nl=False)
    if sys.stdout.isatty():
        typer.echo(f"\n  Go on: regard learn{'' if record.is_done else '   (try to write it in your own words)'}")


@learn.command(cls=RegardCommand)
def speak(
    minutes: Annotated[float, option("Train at most so long.", "--minutes", metavar="N")] = 4.0,
    book: Annotated[str | None, option("A text to learn from. [default: Alice in Wonderland]", metavar="FILE")] = None,
    output: Annotated[
        str | None, option("The page. [default: my-gpt.html, beside your files]", "-o", "--output", metavar="FILE")
    ] = None,
    course: CourseOption = None,
) -> None:
    """Train the GPT of your own files, let it write, and watch its heads.

    Exit status: 0 it was trained, 1 one of your files is wrong, 2 could not be checked or trained.
    """
    from regard.commands.learning.speak import speak_with
    from regard.commands.shared.files import check_output

    check_output(output, (".html",), "the page is HTML")
    speak_with(_folder(course), minutes, Path(book) if book else None, Path(output) if output else None)


def _course(folder: str | None) -> Course:
    from regard.school.course.courses import OWN_COURSE, read_course

    return read_course(OWN_COURSE if folder is None else Path(folder))


def _folder(course: str | None) -> LearnerFolder:
    """The learner's folder: here, or the only one in this folder."""
    from regard.school.course.learner import find_folder

    return find_folder(Path.cwd(), None if course is None else Path(course))


def _lesson(folder: LearnerFolder, name: str | None) -> Lesson:
    return folder.course.lesson(name) if name is not None else folder.current() or folder.course.lessons[-1]


def _show_status(folder: LearnerFolder) -> None:
    from regard.school.drawing.lessons import course_status

    typer.echo(f"\n{course_status(folder, terminal_width())}\n")


def _watch_or_check(folder: LearnerFolder, lesson: Lesson) -> None:
    """Watch mode in a terminal; elsewhere, one check."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        _check_once(folder, lesson)
        return
    from regard.commands.learning.watch_mode import WatchMode

    WatchMode(folder, lesson).run()


def _check_once(folder: LearnerFolder, lesson: Lesson) -> None:
    from regard.school.course.answers import AnswerChecker, check_learner
    from regard.school.drawing.lessons import colored, lesson_heading, next_step, result_text

    width = terminal_width()
    typer.echo(f"\n{lesson_heading(folder, lesson, width, with_task=False)}\n")
    with AnswerChecker() as checker:
        checked = check_learner(folder, lesson, checker)
    typer.echo(f"{colored(result_text(lesson, checked, width))}\n", file=styled(sys.stdout))
    if checked.verdict.is_right:
        typer.echo(f"{next_step(folder, width, after=lesson)}\n")
    else:
        typer.echo(f"  A hint: regard learn hint {lesson.name}\n")
    raise typer.Exit({"right": 0, "wrong": 1}.get(checked.verdict.status, 2))
