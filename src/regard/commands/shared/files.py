"""Files that commands write: pages, figures and reports. What cannot be written is refused before a model runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from regard.commands.shared.options import blamed_on, read_heads
from regard.support.extras import how_to_install

if TYPE_CHECKING:
    from regard.commands.shared.runs import TitledRun
    from regard.heads.change.effects import Effects
    from regard.heads.report.report import Seen

PAGES, FIGURES = (".html", ".htm"), (".svg", ".png", ".pdf")
_LONGEST_STEPS = 512  # tokens of a text whose steps are in the page unless --steps asks for others


def check_output(output: str | None, kinds: Sequence[str], rule: str, is_drawn: bool = True) -> None:
    """Refuse a file of another kind than these, a figure without matplotlib, and a directory that cannot be written to.

    rule: what is written, and its kinds. is_drawn: figures are drawn by matplotlib, not copied.
    """
    if output is None:
        return
    suffix = Path(output).suffix.lower()
    if suffix not in kinds:
        better = shlex.quote(f"{Path(output).stem}{kinds[0]}")
        raise ValueError(f"-o {output}: {rule}; try -o {better}")
    if is_drawn and suffix in FIGURES and find_spec("matplotlib") is None:
        raise ValueError(f"-o {output}: figures need matplotlib, which is missing; {how_to_install('plot')}")
    _check_directory("-o", output)


def check_save(save: str | None, rule: str = "a report is a safetensors file", suffix: str = ".safetensors") -> None:
    """Refuse a file of another kind than the rule says, or in a directory that cannot be written to."""
    if save is None:
        return
    if not save.endswith(suffix):
        path = Path(save)
        better = shlex.quote(str(path.with_name(f"{path.stem or 'seen'}{suffix}")))
        raise ValueError(f"--save {save}: {rule}; try --save {better}")
    _check_directory("--save", save)


def _check_directory(flag: str, file: str) -> None:
    directory = Path(file).parent
    if not directory.is_dir():
        raise ValueError(f"{flag} {file}: there is no directory {directory}; make it first: mkdir -p {directory}")
    if not os.access(directory, os.W_OK):
        raise ValueError(f"{flag} {file}: the directory {directory} is not writable; choose another")


class Contents(NamedTuple):
    """What a page holds beside every head: layers with their steps, None for the usual one; heads with every weight."""

    steps: Sequence[int] | str | None = None  # "all" for every layer
    exact: Sequence[tuple[int, int]] = ()

    def check(self, seen: Seen) -> None:
        """Refuse layers and heads that the model does not have."""
        last = len(seen) - 1
        for layer in () if isinstance(self.steps, str) else self.steps or ():
            if layer > last:
                raise ValueError(f"--steps {layer}: there is no layer {layer}; the model has layers 0 to {last}")
        for layer, head in self.exact:
            with blamed_on(f"--exact {layer}.{head}"):
                _ = seen[layer, head]

    def layers(self, run: TitledRun, usual: int) -> Sequence[int]:
        """The layers of a run whose steps are in the page; unless chosen, the usual one, if it is a layer of regard."""
        from regard.gpt.model import GPT

        if run.is_cut:
            return ()
        if self.steps is not None:
            return range(len(run.seen)) if isinstance(self.steps, str) else self.steps
        return [usual] if isinstance(run.opened.model, GPT) and run.opened.tokens <= _LONGEST_STEPS else []


def read_contents(steps: str | None, exact: str | None) -> Contents:
    """The options --steps and --exact.

    >>> read_contents("1,4", "4.3,0.2")
    Contents(steps=[1, 4], exact=[(4, 3), (0, 2)])
    """
    heads = read_heads("--exact", exact) or ()
    if steps is None or steps == "all":
        return Contents(steps, heads)
    parts = [one.strip() for one in steps.split(",")]
    if not all(one.isdecimal() for one in parts):
        raise ValueError(f"--steps {steps} must be numbers of layers, such as 1,4; or all")
    return Contents(sorted({int(one) for one in parts}), heads)


def write_runs(
    path: str,
    runs: Sequence[TitledRun],
    contents: Contents,
    start: Mapping[str, int | str | bool],
    effects: Effects | None = None,
) -> None:
    """Write a page of one run or of two; start: what it shows first, with the layer and the head."""
    from regard.show.page.write import titled_texts, write_page
    from regard.traces.trace import trace_layers

    reports = []
    for run in runs:
        steps = trace_layers(run.opened.model, run.opened.inputs, contents.layers(run, int(start["layer"])))
        reports += titled_texts(run.seen, run.title, steps, contents.exact, effects, _without_steps(run))
    write_page(path, reports, start)


def _without_steps(run: TitledRun) -> str:
    """What the page says of a layer without steps."""
    from regard.gpt.model import GPT

    if run.is_cut:
        return "Steps are not shown of a run with heads cut. Those without a cut are in the other run."
    if isinstance(run.opened.model, GPT):
        return "The steps of layer {layer} are not in this file. To add them: --steps {layer}"
    return "The code of this model names no steps, so there are none to follow. Models of regard have them: docs/gpt.md"


def announce(output: str, opens: bool) -> None:
    """Say that a file is written, and open it where that was asked for."""
    print(f"\n  Wrote {output}")
    if opens:
        typer.launch(output)
