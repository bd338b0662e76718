"""`regard see TEXT`: what the heads of a model do with a text, in the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from regard.commands.shared import options
from regard.commands.shared.files import check_save
from regard.commands.shared.options import TINY, check_max_tokens, command_line, option, read_head
from regard.commands.shared.runs import LONGEST_KEPT, TitledRun, open_texts, step_of_head, watch_text
from regard.commands.shared.texts import read_text
from regard.show.terminal.table import terminal_width
from regard.support.drawing import as_text

if TYPE_CHECKING:
    from regard.heads.report.views import Head

_FEW = 8  # heads in the table above the picture


def see(
    text: options.Text = None,
    model: options.Model = TINY,
    head: options.Head = None,
    layer: Annotated[
        str | None, option("Show the heads of this layer, by number or name. [default: all layers]")
    ] = None,
    token: Annotated[
        str | None, option("Show where this token looks in every head: sat, or the@4. [default: off]")
    ] = None,
    step: Annotated[
        str | None, option("Show this step of the head as a matrix: scores, mask, queries, … [default: off]")
    ] = None,
    every: options.All = False,
    as_json: options.Json = False,
    save: Annotated[str | None, option("Save the report to this file, FILE.safetensors. [default: not saved]")] = None,
    max_tokens: options.MaxTokens = None,
    device: options.Device = "cpu",
) -> Any:
    """Show what every head of a model does with a text.

    To write a page: regard page. To compare texts, models or heads, or to cut a head: regard compare.
    """
    place = read_head(head, layer)
    _check_views({"--token": token, "--step": step, "--all": every or None, "--json": as_json or None}, head)
    check_max_tokens(max_tokens)
    check_save(save)
    (opened,) = open_texts([model], [read_text(text)], max_tokens, device, step and f"--step {step}")
    table_only = opened.tokens > LONGEST_KEPT and not any((head, token, step, save))
    seen = watch_text(opened, keep=False if table_only else None)
    run = TitledRun("", model, opened, seen)
    chosen = None if place[0] is None or place[1] is None else seen[place[0], place[1]]
    if save is not None:  # files first: whoever reads the output may stop, as head does
        seen.save(save)
    from regard.show.terminal.heads import print_heads
    from regard.show.terminal.heat_map import head_picture

    again, as_page = (command_line(name, text, model=model, max_tokens=max_tokens) for name in ("see", "page"))
    if as_json:
        print(json.dumps(run.as_json(), ensure_ascii=False))
    elif step is not None:
        _print_step(run, chosen or seen[seen.order(place[0])[0]], step, again)
    elif token is not None:
        table = seen.at(token, layers=place[0]).table(terminal_width(), all=every, more="--all")
        print(f"\n  {model}")
        print_heads(table)
        print(f"\n  All heads: {again}")
    elif chosen is not None:
        print(f"\n  {model}\n{head_picture(chosen, terminal_width())}\n\n  All heads: {again}")
    else:
        few = None if every or layer is not None else _FEW
        print(f"\n  {model}")
        print_heads(as_text(seen, terminal_width(), all=few is None, layer=place[0], more="--all", few=few))
        next_head, *others = seen.order(place[0])
        if table_only:
            one, page = "One head: ", "As a page: "
        else:
            one, page = "Another head: ", "As a page:    "
            print(f"\n{head_picture(seen[next_head], terminal_width())}")
            next_head = others[0] if others else next_head
        print(f"\n  {one}{again} --head {next_head[0]}.{next_head[1]}\n  {page}{as_page} -o page.html")
    if save is not None:
        print(f"\n  Saved: regard.load_seen({save!r})", file=sys.stderr if as_json else sys.stdout)
    return seen


def _check_views(views: Mapping[str, object], head: str | None) -> None:
    """Only one view is printed: options that mean nothing together are refused before a model runs."""
    given = {flag: value for flag, value in views.items() if value is not None}
    if head is not None and "--all" in given:
        raise ValueError(f"--head {head} shows one head and --all every head; leave one of them out")
    if head is not None and (token := given.get("--token")) is not None:
        raise ValueError(f"--token {token} is shown in every head, but --head is {head}; leave one of them out")
    if "--json" in given and (head is not None or len(given) > 1):
        raise ValueError("--json prints all heads, so --head, --token, --step and --all have no effect; leave them out")
    if "--step" in given and len(given) > 1:
        other = next(flag for flag in given if flag != "--step")
        raise ValueError(f"--step {given['--step']} shows one head and {other} every head; leave one of them out")


def _print_step(run: TitledRun, head: Head, name: str, again: str) -> None:
    """One step of a head, as a matrix."""
    _, heading, matrix = step_of_head(run.opened, head, name)
    which = f"{head.layer}.{head.head}"
    print(f"\n  {run.model}\n  head {which} · {head.role.name} · {head.record.name}[{head.head}]")
    print(f"\n  {heading}\n\n{matrix}")
    print(f"\n  Another step: {again} --head {which} --step {'mask' if name == 'scores' else 'scores'}")
    print(f"  All heads:    {again}")
