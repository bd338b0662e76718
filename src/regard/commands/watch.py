"""`regard watch MODEL --text FILE`: what the heads of a model do with a text, as a table."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.commands.models import ModelWithText
    from regard.heads.report import Seen

# The second half repeats the first, so that heads that copy can be recognised. (Lewis Carroll)
REPEATED = (
    "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
    "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
)


def watch(
    model: Annotated[
        str, typer.Argument(help="Model directory or name on the Hugging Face hub; tiny is in the package.")
    ] = "tiny",
    text: Annotated[
        str | None,
        typer.Option(
            help="A sentence, a file, or - for standard input.", show_default="a sentence that repeats itself"
        ),
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="Show this layer only, by number or name.", show_default="all layers")
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            help="Show where each token looks in this head: 3 with --layer, or 4.3.", show_default="a table of heads"
        ),
    ] = None,
    save: Annotated[
        str | None, typer.Option(help="Save the report to this file, FILE.safetensors.", show_default="not saved")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            help="Show where this token looks in every head: sat, or the@4 for the one at 4.",
            show_default="a table of heads",
        ),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Read at most this many tokens.", show_default="all")] = None,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, …")] = "cpu",
    every: Annotated[
        bool, typer.Option("--all", help="Show every head, not only the clearest.", show_default="off")
    ] = False,
) -> Any:
    """Show what every head of a model does with a text."""
    chosen_layer, chosen_head = _choose(layer, head)
    if chosen_head is not None and every:
        raise ValueError(f"--head {head} shows one head and --all every head; leave one of them out")
    if token is not None and head is not None:
        raise ValueError(f"--token {token} is shown in every head, but --head is {head}; leave one of them out")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"--max-tokens {max_tokens} must be at least 1")
    if save is not None and not save.endswith(".safetensors"):
        raise ValueError(f"--save {save}: a report is a safetensors file; try --save {_with_suffix(save)}")
    content = _read_text(text)
    from regard.commands.models import open_model
    from regard.show.heads import print_heads
    from regard.show.one_head import head_page
    from regard.show.table import terminal_width

    opened = open_model(model, content, max_tokens, device)
    seen = _watch(opened, keep=None if (head, token, save) != (None, None, None) else False)
    if chosen_layer is not None and chosen_head is not None:
        page = head_page(seen[chosen_layer, chosen_head], terminal_width())
    elif token is not None:
        page = seen.at(token, layers=chosen_layer).table(terminal_width(), all=every, more="--all")
    else:
        page = seen.table(terminal_width(), all=every or layer is not None, layer=chosen_layer, more="--all")
    print(f"\n  {model}")
    print_heads(page)
    if save is not None:
        seen.save(save)
        print(f"\n  Saved: regard.load_seen({save!r})")
    again = f"regard watch {shlex.quote(model)}" + ("" if text is None else f" --text {shlex.quote(text)}")
    first = seen.order(chosen_layer)[0]
    one = f"\n  One head: {again} --layer {first[0]} --head {first[1]}"
    print(one if head is None and token is None else f"\n  All heads: {again}")
    return seen


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


def _read_text(text: str | None) -> str:
    """The text of --text: standard input, a file, or the sentence itself."""
    if text is None:
        return REPEATED
    if text == "-":
        content = sys.stdin.read()
    elif os.path.isfile(text):
        try:
            content = Path(text).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            from regard.gpt.train.text_files import not_text

            reason = not_text(error.object) or f"not UTF-8 text (byte {error.start})"
            raise ValueError(f"--text {text} is {reason}; give a text in UTF-8") from None
    elif os.path.isdir(text):
        raise ValueError(f"--text {text} is a directory; name a file in it")
    elif _looks_like_a_path(text):
        raise ValueError(f"there is no file {text}; give --text a file, a sentence in quotes, or - for standard input")
    else:
        content = text
    if not content.strip():
        raise ValueError(f"--text {shlex.quote(text)} is empty; give it at least a word")
    return content


def _looks_like_a_path(text: str) -> bool:
    """Is it one word with a directory or an ending, as a file has?

    >>> [_looks_like_a_path(text) for text in ("hello", "today.txt", "notes/today", "Hello.", "See today.txt", "3.14")]
    [False, True, True, False, False, False]
    """
    return len(text.split()) == 1 and (os.sep in text or re.search(r"\w\.[A-Za-z]\w*$", text) is not None)


def _with_suffix(save: str) -> str:
    path = Path(save)
    return shlex.quote(str(path.with_name(f"{path.stem or 'seen'}.safetensors")))


def _watch(opened: ModelWithText, keep: bool | None, progress: bool = True) -> Seen:
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
        watch(model, keep=keep, tokenizer=opened.tokenizer) as seen,
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
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
