"""`regard grade FOLDER`: the verdict on every submission of a class, and which mistakes were made how often."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.support.printable import styled


def grade(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Holds a .py file or a folder for each student.")],
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY.toml", help="Class name, task, hidden sizes and seed.", show_default="none"),
    ] = None,
    csv: Annotated[str | None, typer.Option("--csv", metavar="FILE", help="Write CSV.", show_default="off")] = None,
    as_json: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write JSON.", show_default="off")
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write a page.", show_default="off")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--time", metavar="SECONDS", help="Time for each submission, all experiments together.")
    ] = 10.0,
    workers: Annotated[
        int | None, typer.Option(help="Submissions checked at a time.", show_default="one for each processor")
    ] = None,
    unprotected: Annotated[
        bool, typer.Option("--unprotected", help="Run even where a layer of protection is missing.", show_default="off")
    ] = False,
) -> None:
    """Check the submissions of a class, each in a sandbox, and name their mistakes.

    Exit status: 0 all were checked, 1 some could not be checked.
    """
    for flag, path in (("--csv", csv), ("--json", as_json), ("--html", html)):
        if path is not None and not Path(path).parent.is_dir():
            raise ValueError(f"{flag} {path}: {Path(path).parent} is no folder; make it first")
    if not seconds > 0:
        raise ValueError(f"--time {seconds:g} must be greater than 0")
    if workers is not None and workers < 1:
        raise ValueError(f"--workers {workers} must be at least 1")
    from regard.school.grading.grade import CheckerEnded
    from regard.school.grading.grade import grade as grade_folder
    from regard.school.grading.key import read_key
    from regard.school.sandbox.protection import ProtectionMissing
    from regard.show.terminal.table import terminal_width
    from regard.support.drawing import as_page, as_text

    answers = None if key is None else read_key(Path(key))
    try:
        with _progress_bar() as advance:
            report = grade_folder(
                folder, answers, seconds=seconds, workers=workers, unprotected=unprotected, progress=advance
            )
    except ProtectionMissing as missing:
        raise ValueError(f"{missing}. To run submissions without it: --unprotected") from None
    except CheckerEnded as error:
        raise ValueError(f"nothing was graded, because the checker did not start: {error}") from None
    typer.echo(f"\n{as_text(report, terminal_width())}\n")
    _write(csv, report.as_csv())
    _write(as_json, json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n")
    _write(html, as_page(report, f"Grades of {Path(folder).resolve().name}"))
    raise typer.Exit(1 if report.count("unchecked") else 0)


def _write(path: str | None, text: str) -> None:
    from regard.support.files import atomically

    if path is not None:
        with atomically(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        typer.echo(f"  Written: {path}")


@contextmanager
def _progress_bar() -> Iterator[Any]:
    """A bar on stderr that is removed at the end; none without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    hidden = not sys.stderr.isatty()
    columns = (TextColumn("  grading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=styled(sys.stderr)), transient=True, disable=hidden) as progress:
        bar = progress.add_task("", total=None)
        yield lambda done, total, _: progress.update(bar, completed=done, total=total)
