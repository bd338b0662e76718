"""`regard learn speak`: the learner's own GPT is checked, trained on a book, and watched."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from regard.commands.learning.verifying import write_over
from regard.school.course.answers import AnswerChecker, check_learner
from regard.school.course.learner import LearnerFolder, today
from regard.school.course.own_model import BOOK, OwnRecipe, train_own_model
from regard.school.drawing.lessons import colored, result_text, shown_path
from regard.school.drawing.own_model import spoken_page, spoken_text
from regard.show.terminal.table import terminal_width
from regard.support.files import atomically
from regard.support.printable import printable, styled

EXERCISE = "your_gpt"


def speak_with(folder: LearnerFolder, minutes: float, book: Path | None, output: Path | None) -> None:
    """Check the learner's files, train their model, show what it says and what its heads do, and write the page."""
    width = terminal_width()
    if not 0 < minutes <= 60:
        raise ValueError(f"--minutes is {minutes:g}; it is more than 0, and at most 60")
    if book is not None and not book.is_file():
        raise ValueError(f"{book} is no file; --book is a text, UTF-8, of 20,000 characters or more")
    if book is not None and len(book.read_text(encoding="utf-8")) < 20_000:
        raise ValueError(f"{book} has less than 20,000 characters; --book needs more to learn from")
    lesson = folder.course.lesson(EXERCISE)
    typer.echo("\n  Your files are checked …", file=styled(sys.stdout))
    with AnswerChecker() as checker:
        checked = check_learner(folder, lesson, checker)
    if not checked.verdict.is_right:
        typer.echo(f"\n{colored(result_text(lesson, checked, width))}\n", file=styled(sys.stdout))
        typer.echo("  Nothing was trained: every file of your model must be right first.\n")
        raise typer.Exit({"wrong": 1}.get(checked.verdict.status, 2))
    result = None
    for told in train_own_model(folder.file_of(lesson), OwnRecipe(seconds=58 * minutes), book or BOOK):
        if "error" in told:
            write_over("")
            raise ValueError(f"your model could not be trained: {printable(told['error'])}")
        result = told.get("result", result)
        if line := _progress(told, width):
            write_over(line)
    write_over("")
    assert result is not None  # the last thing that is told is a result or an error
    typer.echo(f"\n{printable(spoken_text(result, width))}\n", file=styled(sys.stdout))
    page = output or folder.path / "my-gpt.html"
    name = "Alice's Adventures in Wonderland" if book is None else book.name
    with atomically(page) as temporary:
        temporary.write_text(spoken_page(result, name, today()), encoding="utf-8")
    typer.echo(f"  The page to keep, and to show: {shown_path(page)}\n")


def _progress(told: dict[str, object], width: int) -> str:
    """A line of progress; "" for what is no news."""
    if "stage" in told:
        return "  Your tokenizer reads the book …"
    if "step" in told:
        bar = max(min(30, width - 50), 5)
        filled = int(bar * float(str(told["part"])))
        bars = "█" * filled + "·" * (bar - filled)
        return (
            f"  {bars}  step {told['step']}   loss {float(str(told['loss'])):.2f}   {float(str(told['seconds'])):.0f} s"
        )
    return ""
