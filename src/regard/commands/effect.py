"""`regard effect TEXT`: what the absence of each head costs a model, in the terminal, as a figure or as a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from regard.commands.shared import options
from regard.commands.shared.files import FIGURES, check_output, check_save
from regard.commands.shared.options import TINY, argument, check_max_tokens, command_line, option, read_heads, read_to
from regard.commands.shared.runs import measure_effects, open_texts
from regard.commands.shared.texts import read_text
from regard.show.terminal.table import terminal_width
from regard.support.drawing import as_text

if TYPE_CHECKING:
    from regard.heads.change.effects import Effects

_FEW = 12  # rows of the table


def effect(
    texts: Annotated[
        list[str] | None,
        argument(
            "Sentences or files, or - for standard input. [default: a text that says one thing twice]", metavar="TEXT"
        ),
    ] = None,
    model: options.Model = TINY,
    heads: Annotated[str | None, option("Cut only these heads, one by one: 0.2,4.3. [default: every head]")] = None,
    layers: Annotated[bool, option("Cut whole layers instead of heads. [default: off]", "--layers")] = False,
    token: Annotated[
        str | None, option("Rank by the log-probability of this token: tired, or the@4. [default: by the loss]")
    ] = None,
    to: options.To = "0",
    by: Annotated[
        str,
        option("Run the model once for each cut (cut), or estimate all cuts from one backward pass (gradient)."),
    ] = "cut",
    every: options.All = False,
    output: Annotated[
        str | None, option("Write a figure: .svg, .png or .pdf. [default: off]", "--output", "-o")
    ] = None,
    as_json: options.Json = False,
    save: Annotated[str | None, option("Save all numbers to this file, FILE.json. [default: not saved]")] = None,
    max_tokens: options.MaxTokens = None,
    device: options.Device = "cpu",
) -> Any:
    """Measure how much the loss grows without each head.

    Each head is cut, one at a time, and the loss per token is compared.
    """
    check_max_tokens(max_tokens, least=2, why=": a token is predicted from those before it")
    chosen = read_heads("--heads", heads)
    value = read_to(to)
    if by not in ("cut", "gradient"):
        raise ValueError(f"--by {by} is not known; choose cut or gradient")
    if heads is not None and layers:
        raise ValueError(f"--heads {heads} cuts heads and --layers whole layers; leave one of them out")
    if as_json and every:
        raise ValueError("--json prints all numbers, so --all has no effect; leave it out")
    check_output(output, FIGURES, "effects are a figure, .svg, .png or .pdf")
    check_save(save, "effects are a JSON file", ".json")
    _check_quotes(texts or [])
    opened = open_texts([model], [read_text(one) for one in texts] if texts else [read_text(None)], max_tokens, device)
    try:
        effects = measure_effects(opened, heads=chosen, layers="all" if layers else None, tokens=token, to=value, by=by)
    except ValueError as error:
        if heads is None or not str(error).startswith("there is no"):
            raise
        raise ValueError(f"--heads {heads}: {error}") from None
    # Files first: whoever reads the output may stop, as head does.
    written = []
    if output is not None:
        from regard.show.figures import save_figure

        save_figure(effects.plot(), output)
        written.append(f"Wrote {output}")
    if save is not None:
        effects.save(save)
        written.append(f"Saved: regard.load_effects({save!r})")
    if as_json:
        print(effects.to_json())
    else:
        _print(effects, model, texts or [], every, to, by, max_tokens)
    for line in written:
        print(f"\n  {line}", file=sys.stderr if as_json else sys.stdout)
    return effects


def _check_quotes(texts: Sequence[str]) -> None:
    """Refuse single words: they are a text without its quotes."""
    if len(texts) > 1 and not any(len(one.split()) > 1 or one == "-" or os.path.isfile(one) for one in texts):
        raise ValueError(f'a text of several words needs quotes: regard effect "{" ".join(texts)}"')


def _print(
    effects: Effects, model: str, texts: Sequence[str], every: bool, to: str, by: str, max_tokens: int | None
) -> None:
    from regard.show.terminal.heads import print_heads

    print(f"\n  {model}")
    print_heads(as_text(effects, terminal_width(), all=every, few=_FEW, more="--all"))
    worst = effects.order()[0]
    if len(texts) <= 1 and len(worst.heads) == 1:
        mean = "" if to == "0" else f" --to {to}"
        same = partial(command_line, model=model, max_tokens=max_tokens)
        compared, again = same("compare", *texts), same("effect", *texts)
        print(f"\n  What changes without {worst.name}: {compared} --cut {worst.name}{mean}")
        estimated = "" if by == "cut" else f" --by {by}"
        print(f"  As a figure:              {again}{mean}{estimated} -o effect.svg")
