"""`regard atlas runs/first`: how heads came to do what they do, from the atlases that training wrote."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from regard.commands.shared.files import PAGES
from regard.show.terminal.table import terminal_width
from regard.support.drawing import as_text

if TYPE_CHECKING:
    from regard.heads.atlas.timeline import Timeline


def is_run(name: str) -> bool:
    """Is this the directory of a run?"""
    return (Path(name) / "log.jsonl").is_file() and not (Path(name) / "config.json").exists()


def show_run(name: str, every: bool, output: str | None = None) -> Timeline:
    """Print the heads of a run over its steps, or write the page that plays them."""
    from regard.gpt.train.state import read_run

    if output is not None and not output.endswith(PAGES):
        raise ValueError(f"-o {output}: of a run a page is written; try -o {Path(output).stem or 'training'}.html")
    found = read_run(name)
    print()
    print(as_text(found, terminal_width(), all=every, more="--all"))
    if output is None:
        print(f"\n  As a page that plays the training: {shlex.join(['regard', 'atlas', name])} -o training.html")
    else:
        found.to_html(output, Path(name).name)
        print(f"\n  Wrote {output}")
    return found
