"""`regard check FILE[:CLASS]`: is an attention layer right? If not, the mistake by its name, with its line."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.checking.source import Loaded
    from regard.checking.verdict import Verdict


def check(
    file: Annotated[
        str, typer.Argument(metavar="FILE[:NAME]", help="Python file, and the class or function in it to check.")
    ],
    causal: Annotated[
        bool | None,
        typer.Option(
            "--causal/--bidirectional",
            help="Must it hide the future? [default: as its names and masks say]",
            show_default=False,
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Constructor argument; may be repeated.", show_default="none"),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(
            metavar="W_query=…,W_key=…",
            help="Which weight is which: W_query, W_key, W_value or qkv, out_proj.",
            show_default="by name",
        ),
    ] = None,
    solution: Annotated[bool, typer.Option("--solution", help="Show the right line of code, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check an attention layer that you wrote, and name its mistake.

    Exit status: 0 right, 1 wrong, 2 could not be checked.
    """
    values = {name: _value(text) for name, text in _pairs(arguments or [], "--set")}
    weights = dict(_pairs([one for one in (names or "").split(",") if one], "--names"))
    from regard.checking.check import check_subject
    from regard.checking.source import load, split_name
    from regard.checking.values import Request

    path, name = split_name(file)
    loaded = load(path)
    subjects = loaded.subjects(name) if not (loaded.problem and name and name not in vars(loaded.module)) else []
    verdicts = [check_subject(subject, Request(causal, values, weights)) for subject in subjects]
    for verdict in verdicts:
        verdict.shows_fix = solution
    verdicts = verdicts or [_nothing(loaded, name)]
    if loaded.problem and subjects:
        verdicts[0].notes.append(f"The file itself ends with an error{_at(loaded)}: {loaded.problem}")
    if as_json:
        typer.echo(json.dumps({"file": str(path), "verdicts": [one.as_json() for one in verdicts]}, indent=2))
    else:
        _print(verdicts, file, solution)
    statuses = {verdict.status for verdict in verdicts}
    raise typer.Exit(1 if "wrong" in statuses else 2 if "unchecked" in statuses else 0)


def _print(verdicts: list[Verdict], file: str, solution: bool) -> None:
    from regard.drawing import as_text
    from regard.show.table import terminal_width

    known: dict[tuple[tuple[str, int], ...], str] = {}
    for verdict in verdicts:
        mistakes = tuple((one.name, one.line) for one in verdict.mistakes)
        if mistakes in known:  # a class that uses another has its mistakes, too
            typer.echo(f"\n  ✗ {verdict.name}: the same as {known[mistakes]}, in the same line")
            continue
        if mistakes and all(line for _, line in mistakes):
            known[mistakes] = verdict.name
        typer.echo(f"\n{as_text(verdict, terminal_width())}")
    if not solution and any(one.fix for verdict in verdicts for one in verdict.findings):
        typer.echo(f"\n  The right line: regard check {file} --solution")
    typer.echo()


def _nothing(loaded: Loaded, name: str) -> Verdict:
    """A file in which nothing could be checked."""
    from regard.checking.verdict import Finding, Verdict

    verdict = Verdict(name or loaded.path.name, "", file=str(loaded.path))
    if loaded.problem:
        lines = loaded.source.splitlines()
        code = lines[loaded.line - 1].strip() if 0 < loaded.line <= len(lines) else ""
        verdict.findings = [Finding("", f"The file does not run: {loaded.problem}.", line=loaded.line, code=code)]
    else:
        verdict.problem = "it defines no attention layer; say which class or function: FILE.py:NAME"
    return verdict


def _at(loaded: Loaded) -> str:
    return f" in line {loaded.line}" if loaded.line else ""


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
