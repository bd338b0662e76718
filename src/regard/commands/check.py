"""`regard check FILE[:CLASS]`: is an attention layer right? If not, the mistake by its name, with its line."""

from __future__ import annotations

import ast
import json
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.commands.shared.options import argument, option
from regard.commands.terminal.progress import said_after_a_second
from regard.show.terminal.table import terminal_width
from regard.support.drawing import as_text

if TYPE_CHECKING:
    from regard.school.check.verdict import Verdict
    from regard.school.sandbox.worker import Worker

_NAMES = "Which weight is which: W_query, W_key, W_value or qkv, out_proj. [default: by name]"


def check(
    file: Annotated[str, argument("Python file, and the class or function in it to check.", metavar="FILE[:NAME]")],
    causal: Annotated[
        bool | None,
        option(
            "Whether the layer must hide future tokens. [default: decided from its names and masks]",
            "--causal/--bidirectional",
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None,
        option("Constructor argument; may be repeated. [default: none]", "--set", metavar="NAME=VALUE"),
    ] = None,
    names: Annotated[str | None, option(_NAMES, metavar="W_query=…,W_key=…")] = None,
    seconds: Annotated[float, option("Time limit of the check.", "--time", metavar="SECONDS")] = 20.0,
    solution: Annotated[bool, option("Also show the correct line of code.", "--solution")] = False,
    as_json: Annotated[bool, option("Print JSON.", "--json")] = False,
) -> None:
    """Check an attention layer that you wrote, and name its mistake.

    Exit status: 0 right, 1 wrong, 2 could not be checked.
    """
    values = {name: _value(text) for name, text in _pairs(arguments or [], "--set")}
    weights = dict(_pairs([one for one in (names or "").split(",") if one], "--names"))
    if not seconds > 0:
        raise ValueError(f"--time {seconds:g} must be greater than 0")
    _check_file(file)
    with said_after_a_second(f"checking {Path(file).name}"), _worker() as worker:
        from regard.school.check.learner_code.loading import split_name
        from regard.school.check.own_file import check_file

        path, name = split_name(file)
        verdicts = check_file(path, name, worker, causal=causal, arguments=values, names=weights, seconds=seconds)
    for verdict in verdicts:
        verdict.shows_fix = solution
    if as_json:
        typer.echo(json.dumps({"file": str(path), "verdicts": [one.as_json() for one in verdicts]}, indent=2))
    else:
        _print(verdicts, file, solution)
    statuses = {verdict.status for verdict in verdicts}
    raise typer.Exit(1 if "wrong" in statuses else 2 if "unchecked" in statuses else 0)


def _check_file(file: str) -> None:
    """A file that is missing is said before anything is started."""
    paths = [Path(one) for one in (file, file.rpartition(":")[0]) if one]
    if not any(path.exists() for path in paths):
        path = paths[-1] if file.rpartition(":")[2].isidentifier() else paths[0]
        near = get_close_matches(path.name, [one.name for one in path.parent.glob("*.py")], 1, 0.5)
        remedy = f"did you mean {path.with_name(near[0])}?" if near else "give a Python file, such as homework.py"
        raise ValueError(f"there is no file {path}; {remedy}")


def _print(verdicts: list[Verdict], file: str, solution: bool) -> None:
    known: dict[tuple[tuple[str, int], ...], str] = {}
    for verdict in verdicts:
        mistakes = tuple((one.name, one.line) for one in verdict.mistakes)
        if mistakes in known:  # a class that uses another has its mistakes, too
            typer.echo(f"\n  ✗ {verdict.name}: the same as {known[mistakes]}, in the same line")
            continue
        if mistakes and all(line for _, line in mistakes):
            known[mistakes] = verdict.name
        typer.echo(f"\n{as_text(verdict, terminal_width())}")
    if any(verdict.problem.startswith("out of time") for verdict in verdicts):
        typer.echo("\n  Is there a loop that does not end? To give it more time: --time 60")
    if not solution and any(one.fix for verdict in verdicts for one in verdict.findings):
        typer.echo(f"\n  The right line: regard check {file} --solution")
    typer.echo()


def _worker() -> Worker:
    """The process that the file runs in. It is started before torch is imported here: both imports take seconds."""
    from regard.school.sandbox.process import WorkerProcess
    from regard.school.sandbox.protection import Protection

    protection = Protection.for_own_file(imported=["regard.school.check.own_file"])
    process = WorkerProcess(protection)
    from regard.school.sandbox.worker import Worker

    return Worker(protection=protection, process=process)


def _pairs(words: list[str], flag: str) -> list[tuple[str, str]]:
    pairs = [(name.strip(), value.strip()) for name, _, value in (word.partition("=") for word in words)]
    for word, (name, value) in zip(words, pairs, strict=True):
        if not name or not value:
            raise ValueError(f"{flag} {word} must be NAME=VALUE")
    return pairs


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
