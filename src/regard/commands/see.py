"""`regard see TEXT`: what the heads of a model do with a text, in the terminal or as a page."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.commands.effect import measure_effects
from regard.commands.errors import flags_named
from regard.commands.head_names import read_heads, read_to
from regard.commands.see_compare import (
    TitledRun,
    TwoHeads,
    TwoRuns,
    check_against,
    cut_titles,
    model_titles,
    read_against,
    text_titles,
)
from regard.commands.see_files import PAGES, check_contents, check_files, read_contents, write_ladder, write_report
from regard.commands.texts import read_text
from regard.support.printable import styled

if TYPE_CHECKING:
    from regard.commands.models import ModelWithText
    from regard.heads.report.report import Seen
    from regard.heads.report.views import Head

_FEW = 8  # heads in the table above the picture
_LONGEST_KEPT = 4096  # tokens of a text whose queries and keys are kept to draw a head that nobody asked for


def see(
    text: Annotated[
        str | None,
        typer.Argument(help="A sentence, a file, or - for standard input.", show_default="one that repeats itself"),
    ] = None,
    model: Annotated[
        str, typer.Option(help="Model directory or name on the Hugging Face hub; tiny is in the package.")
    ] = "tiny",
    head: Annotated[
        str | None, typer.Option(help="Show this head: 4.3, or 3 with --layer 4.", show_default="the clearest role")
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="Show the heads of this layer, by number or name.", show_default="all layers")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Show where this token looks in every head: sat, or the@4.", show_default="off"),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(help="Show this step of the head as a matrix: scores, mask, queries, …", show_default="off"),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Compare with this text: a sentence or a file. Shows what changed.", show_default="off"),
    ] = None,
    against_model: Annotated[
        str | None, typer.Option(help="Compare with this model or checkpoint, on the same text.", show_default="off")
    ] = None,
    against_head: Annotated[
        str | None, typer.Option(help="Compare with this head, on the same text: 0.2.", show_default="off")
    ] = None,
    cut: Annotated[
        str | None,
        typer.Option(help="Cut these heads, and show what changes in the others: 0.2,4.3.", show_default="off"),
    ] = None,
    to: Annotated[str, typer.Option(help="What a cut head hands over: 0, or mean, its mean over the text.")] = "0",
    every: Annotated[
        bool, typer.Option("--all", help="List every head, not only the clearest.", show_default="off")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Write a page, .html, or a figure, .svg, .png or .pdf.", show_default="none"
        ),
    ] = None,
    opens: Annotated[bool, typer.Option("--open", help="Open the page in a browser.", show_default="off")] = False,
    steps: Annotated[
        str | None,
        typer.Option(help="Layers whose steps are in the page: 1,4 or all.", show_default="the layer of the head"),
    ] = None,
    exact: Annotated[
        str | None,
        typer.Option(help="Heads of a long text whose every weight is in the page: 4.3,0.2.", show_default="none"),
    ] = None,
    effect: Annotated[
        bool,
        typer.Option("--effect", help="Shade the heads of the page by what their absence costs.", show_default="off"),
    ] = False,
    ladder: Annotated[
        bool, typer.Option("--ladder", help="Write the page of the ladder, with -o ladder.html.", show_default="off")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all means as JSON.", show_default="off")] = False,
    save: Annotated[
        str | None, typer.Option(help="Save the report to this file, FILE.safetensors.", show_default="not saved")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Read at most this many tokens.", show_default="all")] = None,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, …")] = "cpu",
) -> Any:
    """Show what every head of a model does with a text."""
    chosen_layer, chosen_head = _choose(layer, head)
    _check_views({"--token": token, "--step": step, "--all": every or None, "--json": as_json or None}, head)
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"--max-tokens {max_tokens} must be at least 1")
    check_files(output, save, opens)
    contents = read_contents(steps, exact, output)
    if effect and (output is None or not output.lower().endswith(PAGES)):
        raise ValueError("--effect shades the heads of a page; add -o page.html. As a table: regard effect")
    comparison = read_against(against, against_model, against_head, cut, to)
    typed: dict[str, object] = {"--token": token, "--step": step, "--all": every, "--json": as_json, "--save": save}
    if comparison is not None:
        check_against(comparison, text, typed | {"--layer": layer if head is None else None}, output)
    if ladder:
        others = {
            "a text": text,
            "--head": head,
            "--layer": layer,
            "--steps": steps,
            "--exact": exact,
            "--effect": effect,
        } | typed
        others |= {"--max-tokens": max_tokens, "--model": None if model == "tiny" else model}
        _write_ladder(output, opens, others | {comparison.flag if comparison else "": comparison})
        return None
    from regard.commands.models import load_reader

    needs_steps = f"--step {step}" if step is not None else None if steps is None else f"--steps {steps}"
    texts = [read_text(one) for one in ((text,) if against is None else (text, against))]
    models = [model] if against_model is None else [model, against_model]
    with flags_named(device=device):
        readers = [(one, load_reader(one, device, needs_steps)) for one in models]
        opened = [(name, read(one, max_tokens)) for name, read in readers for one in texts]
    longest = max(one.tokens for _, one in opened)
    table_only = longest > _LONGEST_KEPT and all(one is None for one in (head, token, step, output, save))
    titles = model_titles(models) if against is None else text_titles([text, against], texts)
    keep = False if table_only else None
    if cut is not None:
        titles = cut_titles(cut, to)
    runs = [
        TitledRun(title, name, one, watch_text(one, keep))
        for title, (name, one) in zip(titles, opened, strict=cut is None)
    ]
    seen = runs[0].seen
    if cut is not None:
        runs.append(_cut_run(runs[0], titles[1], cut, to, keep))
    check_contents(contents, seen)
    again = f"regard see{'' if text is None else f' {shlex.quote(text)}'}"
    again += "" if model == "tiny" else f" --model {shlex.quote(model)}"
    again += "" if max_tokens is None else f" --max-tokens {max_tokens}"
    chosen = None
    if chosen_layer is not None and chosen_head is not None:
        chosen = seen[chosen_layer, chosen_head].layer, chosen_head
    one = chosen or seen.order(chosen_layer)[0]
    pair: TwoRuns | TwoHeads | None = None
    if comparison is not None and against_head is not None:
        pair = TwoHeads(runs, comparison, one)
    elif comparison is not None:
        same = model if against is not None else text_titles([text], texts)[0]
        pair = TwoRuns(runs, comparison, chosen, same if cut is None else f"{model} · {same}")
    # Files first: whoever reads the output may stop, as head does.
    if output is not None:
        start = {"layer": one[0], "head": one[1]} if pair is None else pair.start
        effects = measure_effects([runs[0].opened]) if effect else None
        start |= {} if effects is None or pair is not None else {"view": "heads", "sort": "effect"}
        write_report(output, runs, one if pair is None else pair.head, contents, start, effects)
    if save is not None:
        seen.save(save)
    if as_json:
        print(json.dumps(_as_json(runs, pair), ensure_ascii=False))
    elif pair is not None:
        pair.print(every, again, picture=not table_only)
    elif step is not None:
        _print_step(runs[0].opened, seen[one], step, model, again)
    else:
        _print(seen, model, chosen_layer, chosen_head, token, every, again, picture=not table_only)
    said = sys.stderr if as_json else sys.stdout
    if output is not None:
        print(f"\n  Wrote {output}", file=said)
        if opens:
            typer.launch(output)
    if save is not None:
        print(f"\n  Saved: regard.load_seen({save!r})", file=said)
    return seen


def _cut_run(uncut: TitledRun, title: str, cut: str, to: str, keep: bool | None) -> TitledRun:
    """The same model and text with heads cut, all of which exist."""
    from regard.heads.change.cut import cut as switch_off

    heads = read_heads("--cut", cut) or []
    for one in heads:
        try:
            _ = uncut.seen[one]
        except ValueError as error:
            raise ValueError(f"--cut {cut}: {error}") from None
    with switch_off(uncut.opened.model, heads, to=read_to(to)):
        return uncut._replace(title=title, seen=watch_text(uncut.opened, keep), is_cut=True)


def _check_views(views: Mapping[str, object], head: str | None) -> None:
    """Only one view is printed: options that mean nothing together are refused before a model runs."""
    given = {flag: value for flag, value in views.items() if value is not None}
    if head is not None and "--all" in given:
        raise ValueError(f"--head {head} shows one head and --all every head; leave one of them out")
    if head is not None and "--token" in given:
        raise ValueError(
            f"--token {given['--token']} is shown in every head, but --head is {head}; leave one of them out"
        )
    if "--json" in given and (head is not None or len(given) > 1):
        raise ValueError("--json prints all heads, so --head, --token, --step and --all have no effect; leave them out")
    if "--step" in given and len(given) > 1:
        other = next(flag for flag in given if flag != "--step")
        raise ValueError(f"--step {given['--step']} shows one head and {other} every head; leave one of them out")


def _write_ladder(output: str | None, opens: bool, others: Mapping[str, object]) -> None:
    typed = [name for name, value in others.items() if value]
    if typed:
        raise ValueError(f"--ladder shows its own example, so {' and '.join(typed)} cannot be used; leave --ladder out")
    if output is None:
        raise ValueError("--ladder is a page; add -o ladder.html. In the terminal: regard trace")
    write_ladder(output)
    print(f"\n  Wrote {output}")
    if opens:
        typer.launch(output)


def _print(
    seen: Seen,
    model: str,
    layer: int | str | None,
    head: int | None,
    token: str | None,
    every: bool,
    again: str,
    picture: bool,
) -> None:
    from regard.show.terminal.heads import print_heads
    from regard.show.terminal.heat_map import head_picture
    from regard.show.terminal.table import terminal_width
    from regard.support.drawing import as_text

    width = terminal_width()
    first = seen.order(layer)[0]
    if token is not None:
        table = seen.at(token, layers=layer).table(width, all=every, more="--all")
        print(f"\n  {model}")
        print_heads(table)
        print(f"\n  All heads: {again}")
        return
    if layer is not None and head is not None:
        drawn = head_picture(seen[layer, head], width)
        print(f"\n  {model}\n{drawn}\n\n  All heads: {again}")
        return
    few = None if every or layer is not None else _FEW
    print(f"\n  {model}")
    print_heads(as_text(seen, width, all=few is None, layer=layer, more="--all", few=few))
    if picture:
        print(f"\n{head_picture(seen[first], width)}")
        first = seen.order(layer)[1 % len(seen.order(layer))]
    print(f"\n  {'Another head' if picture else 'One head'}: {again} --head {first[0]}.{first[1]}")
    print(f"  {'As a page:   ' if picture else 'As a page:'} {again} -o page.html")


def _print_step(opened: ModelWithText, head: Head, name: str, model: str, again: str) -> None:
    """One step of a head, as a matrix."""
    from regard.show.terminal.step_matrix import belongs_to_a_head, step_matrix
    from regard.show.terminal.table import terminal_width
    from regard.traces.one_layer import trace_layer

    steps = trace_layer(opened.model, head.layer, **opened.inputs)
    if name not in steps:
        raise ValueError(f"--step {name} is not a step of this layer; it has {', '.join(steps.names)}")
    step, which = steps.find(name), f"{head.layer}.{head.head}"
    tokens = head.query_tokens
    labels = [str(i) for i in range(opened.tokens)] if tokens is None else tokens[0].labels
    table, legend = step_matrix(step, labels, head.head, steps["weights"].shape[1], terminal_width())
    print(f"\n  {model}\n  head {which} · {head.role.name} · {head.record.name}[{head.head}]")
    print(
        f"\n  {name}{f' of head {which}' if belongs_to_a_head(step) else ''}: {step.operation}\n\n{table}\n\n{legend}"
    )
    print(f"\n  Another step: {again} --head {which} --step {'mask' if name == 'scores' else 'scores'}")
    print(f"  All heads:    {again}")


def _as_json(runs: Sequence[TitledRun], pair: TwoRuns | TwoHeads | None) -> dict[str, Any]:
    """A report, or two with what changed between them."""
    reports = []
    for run in runs:
        tokens = None if run.seen.tokens is None else [list(one) for one in run.seen.tokens]
        reports.append({"model": run.model, "tokens": tokens, **run.seen.summary()})
    if not isinstance(pair, TwoRuns):
        return reports[0]
    return {"before": reports[0], "after": reports[1], "changes": pair.as_json()}


def _choose(layer: str | None, head: str | None) -> tuple[int | str | None, int | None]:
    """A layer by number or name, and a head in it; 4.3, as the table names heads, is both.

    >>> _choose(None, "4.3"), _choose("4", "3"), _choose("h.4.attn", None)
    ((4, 3), (4, 3), ('h.4.attn', None))
    """
    number = int(layer) if layer is not None and layer.lstrip("-").isdigit() else layer
    if head is None:
        return number, None
    first, dot, last = head.rpartition(".")
    if not (last.isdigit() and (first.isdigit() or not dot)):
        raise ValueError(f"--head {head} must be a number, such as 3; or 4.3, head 3 of layer 4")
    if dot and number not in (None, int(first)):
        raise ValueError(f"--head {head} is of layer {first}, but --layer is {layer}; leave one of them out")
    if not dot and number is None:
        raise ValueError(f"--head {head} needs a layer to be in; add --layer 0")
    return int(first) if dot else number, int(last)


def watch_text(opened: ModelWithText, keep: bool | None, progress: bool = True) -> Seen:
    """Run the model once on its text and return the report; progress: show a bar."""
    import torch

    from regard.heads.probe import frugal_options
    from regard.heads.watch import watch

    model, inputs = opened.model, opened.inputs
    device = next(model.parameters()).device
    options = frugal_options(model)  # logits for every token and a cache can take more memory than the report
    with (
        torch.no_grad(),
        _progress_bar(opened.layers, progress) as advance,
        watch(model, tokenizer=opened.tokenizer, keep=keep) as seen,
    ):
        seen.on_call = lambda forward, layer: advance()
        try:
            model(**{name: value.to(device) for name, value in inputs.items()}, **options)
        except IndexError as error:
            size = next(iter(inputs.values())).shape[1]
            raise ValueError(
                f"the model cannot read {size} tokens ({error}); fewer: --max-tokens {size // 2}"
            ) from None
    seen.on_call = None
    return seen


@contextmanager
def _progress_bar(total: int | None, shown: bool) -> Iterator[Any]:
    """A bar on stderr that advances with every attention call and is removed at the end; none without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("  watching"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = not (shown and sys.stderr.isatty())
    with Progress(*columns, console=Console(file=styled(sys.stderr)), transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
