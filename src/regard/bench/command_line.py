"""How a benchmark speaks on the command line: help and errors in the style of every other command of regard.

Needs nothing beyond Python, so that a benchmark also runs by `python -m`, where typer is missing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from typing import Any, NoReturn

_LEFT = 28  # columns of the names of options; longer ones get a line of their own


class BenchParser(argparse.ArgumentParser):
    """A parser with the help and the errors of `regard`: one line, exit status 2.

    >>> parser = BenchParser(prog="regard bench layer", description="Time a layer.")
    >>> _ = parser.add_argument("--rounds", type=int, default=20, help="Most rounds. [default: %(default)s]")
    >>> print(parser.format_help(), end="")
    Usage: regard bench layer [OPTIONS]
    <BLANKLINE>
      Time a layer.
    <BLANKLINE>
    Options:
      --rounds <int>            Most rounds. [default: 20]
      -h, --help                Show this message and exit.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, add_help=False, allow_abbrev=False)
        self._help = self.add_argument("-h", "--help", action="help", help="Show this message and exit.")

    def format_help(self) -> str:
        """The help text, as wide as the terminal and at most 78 columns."""
        width = max(min(shutil.get_terminal_size((80, 24)).columns, 80) - 2, 50)
        lines = [f"Usage: {self.prog} [OPTIONS]", "", *textwrap.wrap(f"  {self.description}", width), "", "Options:"]
        shown = [action for action in self._actions if action.help != argparse.SUPPRESS]
        for action in sorted(shown, key=lambda action: action is self._help):  # help is the last
            lines += self._option_lines(action, width)
        return "\n".join(lines) + "\n"

    def _option_lines(self, action: argparse.Action, width: int) -> list[str]:
        names = f"  {_names(action)}"
        text = (action.help or "") % {"default": action.default}
        wrapped = textwrap.wrap(text, width - _LEFT, break_on_hyphens=False)
        if len(names) > _LEFT - 2:
            return [names, *(" " * _LEFT + line for line in wrapped)]
        return [names.ljust(_LEFT) + wrapped[0], *(" " * _LEFT + line for line in wrapped[1:])]

    def error(self, message: str) -> NoReturn:
        """Leave with one line on stderr."""
        self.exit(2, f"regard: {_plain_error(message)}; see {self.prog} --help\n")


_KINDS = {"int": "a whole number", "float": "a number"}


def _plain_error(message: str) -> str:
    """A message of argparse in the words of the other commands.

    >>> _plain_error("argument --rounds: invalid int value: 'x'")
    '--rounds x must be a whole number'
    >>> _plain_error("argument --mode: invalid choice: 'x' (choose from forward, step)")
    '--mode x must be one of forward, step'
    >>> _plain_error("argument --rounds: expected one argument")
    '--rounds needs a value'
    """
    if match := re.fullmatch(r"argument (\S+): invalid (int|float) value: '(.*)'", message):
        return f"{match[1]} {match[3]} must be {_KINDS[match[2]]}"
    if match := re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message):
        return f"{match[1]} {match[2]} must be one of {match[3].replace(chr(39), '')}"
    if match := re.fullmatch(r"argument (\S+): expected one argument", message):
        return f"{match[1]} needs a value"
    return message


def _names(action: argparse.Action) -> str:
    """The names of an option, and what follows them: <int>, [forward|step]."""
    names = (" / " if isinstance(action, argparse.BooleanOptionalAction) else ", ").join(action.option_strings)
    if action.nargs == 0:
        return names
    value = f"<{getattr(action.type, '__name__', 'str')}>" if action.metavar is None else str(action.metavar)
    if action.choices is not None:
        value = f"[{'|'.join(map(str, action.choices))}]"
    return f"{names} [{value}]" if action.nargs == "?" else f"{names} {value}"
