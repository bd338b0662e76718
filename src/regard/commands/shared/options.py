"""Arguments and options that several commands have: flag, help text and what the default does, each stated once."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any

import typer

TINY = "tiny"  # the trained model in the package
HUB = "Model directory or name on the Hugging Face hub"


def option(help: str, *flags: str, **settings: Any) -> Any:
    """An option of a command; what a default of None does is said at the end of its help."""
    return typer.Option(*flags, help=help, **settings)


def argument(help: str, **settings: Any) -> Any:
    """The same for an argument."""
    return typer.Argument(help=help, **settings)


Text = Annotated[
    str | None, argument("A sentence, a file, or - for standard input. [default: one that repeats itself]")
]
Model = Annotated[str, option(f"{HUB}; tiny is in the package.")]
Head = Annotated[str | None, option("Show this head: 4.3, or 3 with --layer 4. [default: the clearest role]")]
To = Annotated[str, option("What a cut head hands over: 0, or mean, its mean over the text.")]
All = Annotated[bool, option("List every head, not only the first. [default: off]", "--all")]
Json = Annotated[bool, option("Print all numbers as JSON. [default: off]", "--json")]
Open = Annotated[bool, option("Open the page in a browser. [default: off]", "--open")]
MaxTokens = Annotated[int | None, option("Read at most this many tokens of each text. [default: all]")]
Device = Annotated[str, option("Device: cpu, cuda, …")]

# What a page holds.
Steps = Annotated[
    str | None, option("Layers whose steps are in the page: 1,4 or all. [default: the layer of the head]")
]
Exact = Annotated[
    str | None, option("Heads of a long text whose every weight is in the page: 4.3,0.2. [default: none]")
]
Effect = Annotated[bool, option("Shade the heads of the page by what their absence costs. [default: off]", "--effect")]


def command_line(command: str, *texts: str | None, model: str = TINY, max_tokens: int | None = None) -> str:
    """A command that reads the same texts with the same model, to be typed next.

    >>> command_line("see", "The cat", max_tokens=7), command_line("page", None, model="runs/first/model")
    ("regard see 'The cat' --max-tokens 7", 'regard page --model runs/first/model')
    """
    words = [text for text in texts if text is not None]
    words += [] if model == TINY else ["--model", model]
    words += [] if max_tokens is None else ["--max-tokens", str(max_tokens)]
    return shlex.join(["regard", command, *words])


def check_max_tokens(max_tokens: int | None, least: int = 1, why: str = "") -> None:
    """Refuse to read fewer tokens than a command needs."""
    if max_tokens is not None and max_tokens < least:
        raise ValueError(f"--max-tokens {max_tokens} must be at least {least}{why}")


def refuse(options: Mapping[str, object], reason: str, remedy: str) -> None:
    """No option is ignored: those that mean nothing here, and were typed, are errors.

    >>> refuse({"--head": None, "--batch": 2, "--open": True}, "the example is small", "leave them out")
    Traceback (most recent call last):
    ValueError: --batch and --open cannot be used here: the example is small; leave them out
    """
    typed = [name for name, value in options.items() if value is not None and value is not False]
    if typed:
        raise ValueError(f"{' and '.join(typed)} cannot be used here: {reason}; {remedy}")
