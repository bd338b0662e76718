"""Arguments and options that several commands have: flag, help text and what the default does, each stated once."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated

import typer

TINY = "tiny"  # the trained model in the package

Text = Annotated[
    str | None,
    typer.Argument(help="A sentence, a file, or - for standard input.", show_default="one that repeats itself"),
]
Model = Annotated[str, typer.Option(help="Model directory or name on the Hugging Face hub; tiny is in the package.")]
Head = Annotated[
    str | None, typer.Option(help="Show this head: 4.3, or 3 with --layer 4.", show_default="the clearest role")
]
To = Annotated[str, typer.Option(help="What a cut head hands over: 0, or mean, its mean over the text.")]
All = Annotated[bool, typer.Option("--all", help="List every head, not only the first.", show_default="off")]
Json = Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.", show_default="off")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.", show_default="off")]
MaxTokens = Annotated[int | None, typer.Option(help="Read at most this many tokens of each text.", show_default="all")]
Device = Annotated[str, typer.Option(help="Device: cpu, cuda, …")]

# What a page holds.
Steps = Annotated[
    str | None,
    typer.Option(help="Layers whose steps are in the page: 1,4 or all.", show_default="the layer of the head"),
]
Exact = Annotated[
    str | None,
    typer.Option(help="Heads of a long text whose every weight is in the page: 4.3,0.2.", show_default="none"),
]
Effect = Annotated[
    bool,
    typer.Option("--effect", help="Shade the heads of the page by what their absence costs.", show_default="off"),
]


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
