"""`regard grade FOLDER`: the verdict on every submission of a class, and which mistakes were made how often."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.commands.shared.options import argument, option
from regard.commands.terminal.progress import progress_bar
from regard.show.terminal.table import terminal_width
from regard.support.drawing import as_page, as_text
from regard.support.files import atomically, check_writable


def grade(
    folder: Annotated[
        str, argument("Folder with a .py, .ipynb or .zip file, or a folder, for each student.", metavar="FOLDER")
    ],
    key: Annotated[
        str | None,
        option("Answer key: tasks, points, hidden sizes, seed and roster. [default: none]", metavar="KEY.toml"),
    ] = None,
    out: Annotated[
        str | None,
        option(
            "Write grades, feedback and Gradescope's files here; a second run resumes. [default: off]", metavar="DIR"
        ),
    ] = None,
    csv: Annotated[str | None, option("Write CSV. [default: off]", "--csv", metavar="FILE")] = None,
    as_json: Annotated[str | None, option("Write JSON. [default: off]", "--json", metavar="FILE")] = None,
    html: Annotated[str | None, option("Write a page. [default: off]", "--html", metavar="FILE")] = None,
    seconds: Annotated[float, option("Time limit for each task of a submission.", "--time", metavar="SECONDS")] = 10.0,
    again: Annotated[
        bool, option("Check every submission again, not only those that changed. [default: off]", "--again")
    ] = False,
    one: Annotated[bool, option("FOLDER is one submission. [default: off]", "--one")] = False,
    workers: Annotated[
        int | None, option("Number of submissions checked in parallel. [default: one per processor]")
    ] = None,
    unprotected: Annotated[
        bool, option("Run even if this system lacks a layer of the sandbox. [default: off]", "--unprotected")
    ] = False,
) -> None:
    """Check the submissions of a class, each in a sandbox.

    Mistakes are named.
    Exit status: 0 all were checked, 1 some could not be checked.
    """
    for flag, path in (("--csv", csv), ("--json", as_json), ("--html", html)):
        if path is not None:
            check_writable(path, flag)
    if again and out is None:
        raise ValueError("--again needs --out DIR: without it, everything is checked anyway")
    if not seconds > 0:
        raise ValueError(f"--time {seconds:g} must be greater than 0")
    if workers is not None and workers < 1:
        raise ValueError(f"--workers {workers} must be at least 1")
    if not Path(folder).is_dir():
        raise ValueError(f"{folder} is no folder; give the folder that holds the submissions")
    from regard.school.grading.checker import CheckerEnded
    from regard.school.grading.grade import grade as grade_folder
    from regard.school.grading.key import read_key
    from regard.school.sandbox.protection import ProtectionMissing

    answers = None if key is None else read_key(Path(key))
    try:
        with progress_bar("grading") as advance:
            options: dict[str, Any] = {"workers": workers, "unprotected": unprotected, "progress": advance}
            options |= {"out": out, "again": again, "one": one}
            report = grade_folder(folder, answers, seconds=seconds, **options)
    except ProtectionMissing as missing:
        raise ValueError(f"{missing}. To run submissions without it: --unprotected") from None
    except KeyboardInterrupt:
        if out is not None:
            typer.echo(f"  Stopped. What was checked is in {out}; the same command goes on from there.", err=True)
        raise
    except CheckerEnded as error:
        raise ValueError(f"nothing was graded, because the checker did not start: {error}") from None
    typer.echo(f"\n{as_text(report, terminal_width())}\n")
    _write(csv, report.as_csv())
    _write(as_json, json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n")
    _write(html, as_page(report, f"Grades of {Path(folder).resolve().name}"))
    if out is not None:
        typer.echo(f"  Written: {out}/grades.csv, results.json, similar.csv, feedback, gradescope")
    raise typer.Exit(1 if report.count("unchecked") else 0)


def _write(path: str | None, text: str) -> None:
    if path is not None:
        with atomically(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        typer.echo(f"  Written: {path}")
