"""What `regard see` writes: a page, a figure, a report. Its options are checked before a model runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from regard.commands.head_names import read_heads

if TYPE_CHECKING:
    from regard.commands.see_compare import TitledRun
    from regard.heads.change.effects import Effects
    from regard.heads.report.report import Seen

PAGES, FIGURES = (".html", ".htm"), (".svg", ".png", ".pdf")
_LONGEST_STEPS = 512  # tokens of a text whose steps are in the page unless --steps asks for others


class Contents(NamedTuple):
    """What a page holds beside every head: layers with their steps, None for the usual one; heads with every weight."""

    steps: Sequence[int] | str | None = None  # "all" for every layer
    exact: Sequence[tuple[int, int]] = ()


def check_files(output: str | None, save: str | None, opens: bool) -> None:
    """Refuse files of a kind that cannot be written, or in a directory that does not exist."""
    if save is not None and not save.endswith(".safetensors"):
        path = Path(save)
        better = shlex.quote(str(path.with_name(f"{path.stem or 'seen'}.safetensors")))
        raise ValueError(f"--save {save}: a report is a safetensors file; try --save {better}")
    suffix = "" if output is None else Path(output).suffix.lower()
    if output is not None and suffix not in (*PAGES, *FIGURES):
        better = shlex.quote(f"{Path(output).stem}.html")
        raise ValueError(f"-o {output}: a page is FILE.html, a figure .svg, .png or .pdf; try -o {better}")
    if suffix in FIGURES and find_spec("matplotlib") is None:
        raise ValueError(f'-o {output}: figures need matplotlib, which is missing; pip install "regard[plot]"')
    if opens and suffix not in PAGES:
        raise ValueError("--open needs a page to open; add -o page.html")
    for flag, file in (("-o", output), ("--save", save)):
        if file is None:
            continue
        directory = Path(file).parent
        if not directory.is_dir():
            raise ValueError(f"{flag} {file}: there is no directory {directory}; make it first: mkdir -p {directory}")
        if not os.access(directory, os.W_OK):
            raise ValueError(f"{flag} {file}: the directory {directory} is not writable; choose another")


def read_contents(steps: str | None, exact: str | None, output: str | None) -> Contents:
    """The options --steps and --exact.

    >>> read_contents("1,4", "4.3,0.2", "page.html")
    Contents(steps=[1, 4], exact=[(4, 3), (0, 2)])
    """
    for flag, value in (("--steps", steps), ("--exact", exact)):
        if value is not None and output is None:
            raise ValueError(f"{flag} {value} is about a page; add -o page.html")
    layers: Sequence[int] | str | None = steps
    if steps is not None and steps != "all":
        parts = [one.strip() for one in steps.split(",")]
        if not all(one.isdecimal() for one in parts):
            raise ValueError(f"--steps {steps} must be numbers of layers, such as 1,4; or all")
        layers = sorted({int(one) for one in parts})
    return Contents(layers, read_heads("--exact", exact) or ())


def check_contents(contents: Contents, seen: Seen) -> None:
    """Refuse layers and heads that the model does not have."""
    last = len(seen) - 1
    if not isinstance(contents.steps, str):
        for layer in contents.steps or ():
            if layer > last:
                raise ValueError(f"--steps {layer}: there is no layer {layer}; the model has layers 0 to {last}")
    for layer, head in contents.exact:
        try:
            _ = seen[layer, head]
        except ValueError as error:
            raise ValueError(f"--exact {layer}.{head}: {error}") from None


def write_report(
    path: str,
    runs: Sequence[TitledRun],
    head: tuple[int, int],
    contents: Contents,
    start: Mapping[str, object],
    effects: Effects | None = None,
) -> None:
    """Write a page of one run or of two, or a figure of the head.

    A page has the steps of the head's layer where that is a layer of regard; start: what it shows first.
    """
    if Path(path).suffix.lower() in FIGURES:
        from regard.show.figures import save_figure

        save_figure(runs[0].seen[head].plot(), path)
        return
    from regard.gpt.model import GPT
    from regard.show.page.write import titled_texts, write_page
    from regard.traces.one_layer import trace_layers

    reports = []
    for title, _, opened, seen, is_cut in runs:
        layers: Sequence[int] = ()
        if is_cut:
            layers = ()
        elif contents.steps == "all":
            layers = range(len(seen))
        elif contents.steps is not None:
            layers = [int(one) for one in contents.steps]
        elif isinstance(opened.model, GPT) and opened.tokens <= _LONGEST_STEPS:
            layers = [head[0]]
        reports += titled_texts(seen, title, trace_layers(opened.model, opened.inputs, layers), contents.exact, effects)
    write_page(path, reports, start)


def write_ladder(path: str) -> None:
    """Write the page of the ladder: its four rungs, each with its steps."""
    from regard.commands.ladder_page import ladder_reports
    from regard.show.page.write import write_page

    write_page(path, ladder_reports())
