"""`regard effect TEXT`: what the absence of each head costs a model, in the terminal, as a figure or as a file."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.commands.errors import flags_named
from regard.commands.head_names import read_heads, read_to
from regard.commands.see_files import FIGURES, check_files
from regard.commands.texts import read_text
from regard.support.printable import styled

if TYPE_CHECKING:
    from regard.commands.models import ModelWithText
    from regard.heads.change.effects import Effects

_FEW = 12  # rows of the table


def effect(
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Sentences or files, or - for standard input.", show_default="one that repeats itself"),
    ] = None,
    model: Annotated[
        str, typer.Option(help="Model directory or name on the Hugging Face hub; tiny is in the package.")
    ] = "tiny",
    heads: Annotated[
        str | None, typer.Option(help="Cut only these heads, one by one: 0.2,4.3.", show_default="every head")
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Cut whole layers in place of heads.", show_default="off")
    ] = False,
    token: Annotated[
        str | None,
        typer.Option(help="Rank by the log-probability of this token: tired, or the@4.", show_default="by the loss"),
    ] = None,
    to: Annotated[str, typer.Option(help="What a cut head hands over: 0, or mean, its mean over the text.")] = "0",
    every: Annotated[bool, typer.Option("--all", help="List every head.", show_default="off")] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Write a figure: .svg, .png or .pdf.", show_default="none")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.", show_default="off")] = False,
    save: Annotated[
        str | None, typer.Option(help="Save all numbers to this file, FILE.safetensors.", show_default="not saved")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Read at most this many tokens of each text.", show_default="all")
    ] = None,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, …")] = "cpu",
) -> Any:
    """Measure what each head's absence costs: by how much the loss grows when it is cut."""
    if max_tokens is not None and max_tokens < 2:
        raise ValueError(f"--max-tokens {max_tokens} must be at least 2: a token is predicted from those before it")
    chosen = read_heads("--heads", heads)
    value = read_to(to)
    if heads is not None and layers:
        raise ValueError(f"--heads {heads} cuts heads and --layers whole layers; leave one of them out")
    if as_json and every:
        raise ValueError("--json prints all numbers, so --all has no effect; leave it out")
    check_files(output, save, False)
    if output is not None and Path(output).suffix.lower() not in FIGURES:
        better = shlex.quote(f"{Path(output).stem}.svg")
        raise ValueError(f"-o {output}: effects are a figure, .svg, .png or .pdf; try -o {better}")
    _check_quotes(texts or [])
    contents = [read_text(one) for one in texts] if texts else [read_text(None)]
    from regard.commands.models import load_reader

    with flags_named(device=device):
        read = load_reader(model, device)
        opened = [read(one, max_tokens) for one in contents]
    with _flag_before_missing(heads):
        effects = measure_effects(opened, heads=chosen, layers="all" if layers else None, tokens=token, to=value)
    # Files first: whoever reads the output may stop, as head does.
    if output is not None:
        from regard.show.figures import save_figure

        save_figure(effects.plot(), output)
    if save is not None:
        effects.save(save)
    if as_json:
        print(effects.to_json())
    else:
        _print(effects, model, texts or [], every, to, max_tokens)
    said = sys.stderr if as_json else sys.stdout
    if output is not None:
        print(f"\n  Wrote {output}", file=said)
    if save is not None:
        print(f"\n  Saved: regard.load_effects({save!r})", file=said)
    return effects


def measure_effects(opened: Sequence[ModelWithText], **options: Any) -> Effects:
    """The effects of cuts in one model that has read these texts, with a bar; options: those of regard.effect."""
    from regard.heads.change.effect import effect as measure

    model, tokenizer, inputs = opened[0].model, opened[0].tokenizer, [one.inputs for one in opened]
    with _progress_bar() as advance:
        return measure(model, inputs, tokenizer=tokenizer, progress=advance, **options)


def _check_quotes(texts: Sequence[str]) -> None:
    """Refuse single words: they are a text without its quotes."""
    if len(texts) > 1 and not any(len(one.split()) > 1 or one == "-" or os.path.isfile(one) for one in texts):
        raise ValueError(f'a text of several words needs quotes: regard effect "{" ".join(texts)}"')


@contextmanager
def _flag_before_missing(heads: str | None) -> Iterator[None]:
    """Name the flag where a head or layer does not exist."""
    try:
        yield
    except ValueError as error:
        if heads is None or not str(error).startswith("there is no"):
            raise
        raise ValueError(f"--heads {heads}: {error}") from None


def _print(effects: Effects, model: str, texts: Sequence[str], every: bool, to: str, max_tokens: int | None) -> None:
    from regard.show.terminal.heads import print_heads
    from regard.show.terminal.table import terminal_width
    from regard.support.drawing import as_text

    print(f"\n  {model}")
    print_heads(as_text(effects, terminal_width(), all=every, few=_FEW, more="--all"))
    worst = effects.order()[0]
    again = "" if len(texts) != 1 else f" {shlex.quote(texts[0])}"
    again += "" if model == "tiny" else f" --model {shlex.quote(model)}"
    again += "" if max_tokens is None else f" --max-tokens {max_tokens}"
    mean = "" if to == "0" else f" --to {to}"
    if len(texts) <= 1 and len(worst.heads) == 1:
        print(f"\n  What changes without {worst.name}: regard see{again} --cut {worst.name}{mean}")
        print(f"  As a figure:              regard effect{again}{mean} -o effect.svg")


@contextmanager
def _progress_bar() -> Iterator[Any]:
    """A bar on stderr that is removed at the end; none without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("  cutting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = not sys.stderr.isatty()
    with Progress(*columns, console=Console(file=styled(sys.stderr)), transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
