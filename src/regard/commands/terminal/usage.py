"""A command line that typer refuses, and help texts, in the words of regard: `--tokens 0 must be at least 1`."""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import MISSING
from inspect import Parameter
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from regard.commands.shared.texts import is_model
from regard.gpt.option_table import Spec

# What typer says of a value, in the wordings of its versions, and what the value must be.
_RULES = (
    (r"greater than or equal to (\S+)|not in the range x>=(\S+?)\.?$", "must be at least {}"),
    (r"valid (?:integer|int)\b", "must be a whole number"),
    (r"valid (?:number|float)\b", "must be a number"),
)
_ELSEWHERE = {
    "No such command 'watch'": "regard see --model DIRECTORY shows what every head of a model does",  # Python's name
    "No such command 'bench'": "the benchmarks are in the repository: in a clone of it, python -m benchmarks",
}
# The types of flags, where typer does not take those of Python's arguments.
_FLAG_TYPES: dict[Any, Any] = {
    **dict.fromkeys((Any, str | Path, str | Path | None), str),
    **dict.fromkeys((float | int, float | int | None), float),
    int | str | Sequence[int] | Sequence[str] | None: list[str],
}
NO_UTF8 = "the locale of this terminal is not UTF-8; set one: export LC_ALL=C.UTF-8"


class _PlainHelp:
    """Help in plain tables: <int>, [default: 50]."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """FOLDER, where typer writes {FOLDER}."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [re.sub(r"^\{(.*)\}", r"\1", piece) for piece in pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the tables of arguments, options and commands."""
        write = formatter.write_dl
        formatter.write_dl = lambda rows, *more, **options: write([_plain(*row) for row in rows], *more, **options)
        try:
            super().format_options(ctx, formatter)  # type: ignore[misc]
        finally:
            del formatter.write_dl


class RegardCommand(_PlainHelp, TyperCommand):
    """A command."""


class RegardGroup(_PlainHelp, TyperGroup):
    """A group of commands."""


class HelpfulGroup(TyperGroup):
    """Without a command it shows its help, and that is no error."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])


def option_parameter(spec: Spec) -> Parameter:
    """An option of a table as a parameter that typer reads: a flag with its type, default and help."""
    required = spec.default is MISSING
    shown = "" if required else f"  [default: {spec.default_text}]"
    info = typer.Option(*filter(None, [spec.option.flag]), help=spec.option.help + shown, show_default=False)
    kind = _FLAG_TYPES.get(spec.type, spec.type)
    return Parameter(
        spec.name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if required else spec.default,
        annotation=Annotated[kind | None if spec.default is None else kind, info],
    )


def _plain(names: str, text: str) -> tuple[str, str]:
    """A row of a help text.

    >>> _plain("--heads <int range>", "Number of heads. [default: 12]  [x>=1]")
    ('--heads <int>', 'Number of heads. [default: 12]')
    >>> _plain("--stop <list[str]>", "May be repeated.  [default: (none)]")
    ('--stop <str>', 'May be repeated. [default: none]')
    >>> _plain("[WORD]... <list[str]>", "A word.")
    ('WORD...', 'A word.')
    >>> _plain("FILE[:NAME] <str>", "A file.")
    ('FILE[:NAME]', 'A file.')
    """
    if not names.startswith("-"):
        names = re.sub(r"^\[(\w+)\]", r"\1", re.sub(r" <[^<>]+>$", "", names))
    names = re.sub(r"<list\[(\w+)\]>|<(\w+) range>", lambda match: f"<{match[1] or match[2]}>", names)
    text = re.sub(r"\s*\[default: \((.*)\)\]$", r" [default: \1]", re.sub(r"\s*\[x>=\d+\]$", "", text))
    return names, re.sub(r"  +(?=\[(?:default: |required))", " ", text)


def explain_usage(error: Any, typed: Sequence[str], command: str) -> str:
    """What is wrong with a command line, in one line. typed: the words after the command."""
    message: str = error.format_message().rstrip(".")
    if "unexpected extra argument" in message:
        context = getattr(error, "ctx", None)
        options = [name for one in (context.command.params if context else ()) for name in one.opts]
        return _explain_words(message, typed, command, takes_model="--model" in options)
    if (elsewhere := _ELSEWHERE.get(message)) is not None:
        return f"{message}; {elsewhere}"
    if "requires an argument" in message:
        return f"{getattr(error, 'option_name', message)} needs a value"
    flags = [name for name in getattr(getattr(error, "param", None), "opts", ()) if name.startswith("-")]
    value = typed_value(flags, typed)
    if value is None or not message.startswith("Invalid value"):
        return message
    flag = max(flags, key=len)
    for pattern, rule in _RULES:
        if match := re.search(pattern, message):
            limit = next((group for group in match.groups() if group), "")
            return f"{flag} {shlex.quote(value)} {rule.format(limit)}"
    return f"{flag} {shlex.quote(value)}: {message.partition(': ')[2] or message}"


def _explain_words(message: str, typed: Sequence[str], command: str, takes_model: bool) -> str:
    """Several words where one text is expected: a model that was named without its flag, files, or missing quotes."""
    if any(one.startswith("-") for one in typed):
        left = re.search(r"\((?!s\))(.*)\)$", message)
        return f"a text of several words needs quotes{f'; left over: {left[1]}' if left else ''}"
    first, *others = typed
    if takes_model and is_model(first):
        text = f' "{" ".join(others)}"' if others else ""
        return f"{first} is a model, not a text: {command} --model {shlex.quote(first)}{text}"
    if all(map(os.path.isfile, typed)):
        return f"one text at a time, and these are {len(typed)} files: {command} {shlex.quote(first)}"
    return f'a text of several words needs quotes: {command} "{" ".join(typed)}"'


def typed_value(flags: Sequence[str], typed: Sequence[str]) -> str | None:
    """The value that was typed after one of these flags; of several, the last.

    >>> typed_value(["--tokens"], ["--tokens", "0"]), typed_value(["-o", "--output"], ["--output=a b"])
    ('0', 'a b')
    """
    values = [word.partition("=")[2] for word in typed if word.partition("=")[0] in flags and "=" in word]
    values += [value for flag, value in pairwise(typed) if flag in flags]
    return values[-1] if values else None


def read_argument(typed: str) -> str:
    r"""A word of the command line as text, in whatever locale: Python hands over what it cannot decode as surrogates.

    >>> read_argument("caf\udcc3\udca9") == "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    True
    """
    if typed.isascii() or not re.search("[\ud800-\udfff]", typed) or os.path.exists(typed):
        return typed  # a file is found by the bytes of its name
    try:
        return typed.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        shown = typed.encode("ascii", "replace").decode()
        raise ValueError(f"{shown} is not UTF-8 text; type it where the locale is UTF-8, or give a file") from None
