"""`regard see TEXT`: what the heads of a model do with a text, in the terminal or as a page."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.commands.texts import read_text

if TYPE_CHECKING:
    from regard.commands.models import ModelWithText
    from regard.heads.report import Seen

_FEW = 8  # heads in the table above the picture
_PAGES, _FIGURES = (".html", ".htm"), (".svg", ".png", ".pdf")


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
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Write a page (FILE.html) or a figure (.svg, .png, .pdf).", show_default="none"
        ),
    ] = None,
    opens: Annotated[bool, typer.Option("--open", help="Open the page in a browser.", show_default="off")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all means as JSON.", show_default="off")] = False,
    save: Annotated[
        str | None, typer.Option(help="Save the report to this file, FILE.safetensors.", show_default="not saved")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Read at most this many tokens.", show_default="all")] = None,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, …")] = "cpu",
    every: Annotated[
        bool, typer.Option("--all", help="List every head, not only the clearest.", show_default="off")
    ] = False,
) -> Any:
    """Show what every head of a model does with a text."""
    chosen_layer, chosen_head = _choose(layer, head)
    _check_options(head, token, output, opens, as_json, save, every, max_tokens)
    content = read_text(text)
    from regard.commands.models import open_model

    opened = open_model(model, content, max_tokens, device)
    seen = _watch(opened)
    if as_json:
        print(json.dumps(_as_json(seen, model), ensure_ascii=False))
    else:
        again = f"regard see{'' if text is None else f' {shlex.quote(text)}'}"
        again += "" if model == "tiny" else f" --model {shlex.quote(model)}"
        _print(seen, model, chosen_layer, chosen_head, token, every, again)
    if output is not None:
        _write(opened, seen, output, model, chosen_layer, chosen_head)
        print(f"\n  Wrote {output}", file=sys.stderr if as_json else sys.stdout)
    if opens and output is not None:
        typer.launch(output)
    if save is not None:
        seen.save(save)
        print(f"\n  Saved: regard.load_seen({save!r})", file=sys.stderr if as_json else sys.stdout)
    return seen


def _check_options(
    head: str | None,
    token: str | None,
    output: str | None,
    opens: bool,
    as_json: bool,
    save: str | None,
    every: bool,
    max_tokens: int | None,
) -> None:
    """Options that mean nothing together, or files of a kind that cannot be written, are refused before a model runs."""
    if head is not None and every:
        raise ValueError(f"--head {head} shows one head and --all every head; leave one of them out")
    if token is not None and head is not None:
        raise ValueError(f"--token {token} is shown in every head, but --head is {head}; leave one of them out")
    if as_json and (every or token is not None or head is not None):
        raise ValueError("--json prints all heads, so --head, --token and --all have no effect; leave them out")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"--max-tokens {max_tokens} must be at least 1")
    if save is not None and not save.endswith(".safetensors"):
        path = Path(save)
        better = shlex.quote(str(path.with_name(f"{path.stem or 'seen'}.safetensors")))
        raise ValueError(f"--save {save}: a report is a safetensors file; try --save {better}")
    suffix = "" if output is None else Path(output).suffix.lower()
    if output is not None and suffix not in (*_PAGES, *_FIGURES):
        raise ValueError(f"--output {output}: a page is FILE.html, a figure FILE.svg, .png or .pdf")
    if opens and suffix not in _PAGES:
        raise ValueError("--open needs a page to open; add -o page.html")


def _print(
    seen: Seen, model: str, layer: int | str | None, head: int | None, token: str | None, every: bool, again: str
) -> None:
    from regard.drawing import as_text
    from regard.show.heads import print_heads
    from regard.show.heat_map import head_picture
    from regard.show.table import terminal_width

    width = terminal_width()
    first = seen.order(layer)[0]
    print(f"\n  {model}")
    if token is not None:
        print_heads(seen.at(token, layers=layer).table(width, all=every, more="--all"))
        print(f"\n  All heads: {again}")
        return
    if layer is not None and head is not None:
        print(head_picture(seen[layer, head], width))
        print(f"\n  All heads: {again}")
        return
    few = None if every or layer is not None else _FEW
    print_heads(as_text(seen, width, all=few is None, layer=layer, more="--all", few=few))
    print(f"\n{head_picture(seen[first], width)}")
    other = seen.order(layer)[1 % len(seen.order(layer))]
    print(f"\n  Another head: {again} --head {other[0]}.{other[1]}")
    print(f"  As a page:    {again} -o page.html")


def _write(
    opened: ModelWithText, seen: Seen, output: str, model: str, layer: int | str | None, head: int | None
) -> None:
    """Write the page or the figure, by the ending of its name."""
    chosen = seen.order()[0] if layer is None or head is None else (layer, head)
    if Path(output).suffix.lower() in _PAGES:
        from regard.show.page.write import write_page

        write_page(output, seen, title=model, model=opened.model, inputs=opened.inputs, head=seen[chosen])
    else:
        raise ValueError(f"--output {output}: figures need the extra plot")


def _as_json(seen: Seen, model: str) -> dict[str, Any]:
    tokens = seen.tokens
    return {"model": model, "tokens": None if tokens is None else [list(one) for one in tokens], **seen.summary()}


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


def _watch(opened: ModelWithText) -> Seen:
    """Run the model once on its text and return the report."""
    import torch

    from regard.heads.probe import frugal_options
    from regard.heads.watch import watch

    model, inputs = opened.model, opened.inputs
    device = next(model.parameters()).device
    options = frugal_options(model)  # logits for every token and a cache can take more memory than the report
    with (
        torch.no_grad(),
        _progress_bar(opened.layers) as advance,
        watch(model, tokenizer=opened.tokenizer) as seen,
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
def _progress_bar(total: int | None) -> Iterator[Any]:
    """A bar on stderr that advances with every attention call and is removed at the end; none without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("  watching"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
