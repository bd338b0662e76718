"""Arguments and options that several commands have, each stated once, and reading them: 4.3 is head 3 of layer 4."""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from regard.support.files import is_local

TINY = "tiny"  # the trained model in the package
HUB = "Model directory or name on the Hugging Face hub"


def option(help: str, *flags: str, **settings: Any) -> Any:
    """An option of a command; what a default of None does is said at the end of its help."""
    return typer.Option(*flags, help=help, **settings)


def argument(help: str, **settings: Any) -> Any:
    """The same for an argument."""
    return typer.Argument(help=help, **settings)


def check_model(name: str) -> str:
    """Refuse a model that can only be a directory and is not there, before anything is loaded."""
    if is_local(name) and not os.path.exists(os.path.expanduser(name)):
        raise ValueError(f"--model {name}: there is no directory {name}; look for a mistake in its name")
    return name


Text = Annotated[
    str | None,
    argument(
        "A sentence, a file, or - for standard input. [default: a text that says one thing twice]", metavar="TEXT"
    ),
]
Model = Annotated[str, option(f"{HUB}; tiny is in the package.", callback=check_model)]
Head = Annotated[str | None, option("Show this head: 4.3, or 3 with --layer 4. [default: the clearest role]")]
To = Annotated[str, option("Replace the output of a cut head with 0, or with its mean over the text (mean).")]
All = Annotated[bool, option("List all heads. [default: the first few]", "--all")]
Json = Annotated[bool, option("Print all numbers as JSON. [default: off]", "--json")]
Open = Annotated[bool, option("Open the file in a browser. [default: off]", "--open")]
MaxTokens = Annotated[int | None, option("Read at most this many tokens of each text. [default: all]")]
Device = Annotated[str, option("Device: cpu, cuda, …")]

# What a page holds.
Steps = Annotated[str | None, option("Layers to include step by step: 1,4 or all. [default: the layer of the head]")]
Exact = Annotated[str | None, option("Heads to include with all weights, for a long text: 4.3,0.2. [default: none]")]
Effect = Annotated[bool, option("Shade heads by how much the loss grows without them. [default: off]", "--effect")]


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


def read_head(head: str | None, layer: int | str | None) -> tuple[int | str | None, int | None]:
    """--head and --layer: a layer by number or name, and a head in it; 4.3, as tables name heads, is both.

    >>> read_head("4.3", None), read_head("3", "4"), read_head(None, "h.4.attn")
    ((4, 3), (4, 3), ('h.4.attn', None))
    """
    number = int(layer) if isinstance(layer, str) and layer.lstrip("-").isdigit() else layer
    if head is None:
        return number, None
    first, dot, last = head.rpartition(".")
    if not (last.isdigit() and (first.isdigit() or not dot)):
        raise ValueError(f"--head {head} must be a number, such as 3; or 4.3, head 3 of layer 4")
    if dot and number not in (None, int(first)):
        raise ValueError(f"--head {head} is of layer {first}, but --layer is {layer}; leave one of them out")
    if not dot and number is None:
        raise ValueError(f"--head {head} needs a layer to be in; add --layer 0, or write --head 0.{head}")
    return int(first) if dot else number, int(last)


def read_heads(flag: str, heads: str | None) -> list[tuple[int, int]] | None:
    """Several heads, each as tables name it.

    >>> read_heads("--heads", "0.2,4.3")
    [(0, 2), (4, 3)]
    """
    if heads is None:
        return None
    chosen = []
    for one in heads.split(","):
        layer, _, head = one.strip().partition(".")
        if not (layer.isdecimal() and head.isdecimal()):
            raise ValueError(f"{flag} {heads} must be heads, such as 4.3, head 3 of layer 4; or several: 4.3,0.2")
        chosen.append((int(layer), int(head)))
    return chosen


def read_to(to: str) -> int | str:
    """What a cut head hands over.

    >>> read_to("0"), read_to("mean")
    (0, 'mean')
    """
    if to not in ("0", "mean"):
        raise ValueError(f"--to {to} must be 0 or mean; other values in Python: to=… of regard.cut and regard.effect")
    return 0 if to == "0" else to


@contextmanager
def blamed_on(option: str) -> Iterator[None]:
    """Inside this block, an error says which option asked for a head or layer that does not exist.

    >>> with blamed_on("--cut 0.9"):
    ...     raise ValueError("head 9 does not exist")
    Traceback (most recent call last):
    ValueError: --cut 0.9: head 9 does not exist
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
