"""`regard atlas runs/first`: how heads came to do what they do, from the atlases that training wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from regard.show.terminal.table import terminal_width
from regard.support.drawing import as_text

if TYPE_CHECKING:
    from regard.heads.atlas.timeline import Timeline


def is_run(name: str) -> bool:
    """Is this the directory of a run with atlases?"""
    return (Path(name) / "log.jsonl").is_file() and (Path(name) / "atlases").is_dir()


def show_run(name: str, every: bool) -> Timeline:
    """Print the heads of a run over its steps."""
    from regard.gpt.train.atlases import atlas_files
    from regard.gpt.train.state import LOG, read_log
    from regard.heads.atlas.timeline import read_timeline

    files = atlas_files(Path(name))
    if not files:
        raise ValueError(f"{name} has no atlases yet; regard train --atlas-every N writes them")
    losses = {line["step"]: line["loss"] for line in read_log(Path(name) / LOG) if "loss" in line}
    found = read_timeline(files, losses)
    print()
    print(as_text(found, terminal_width(), all=every, more="--all"))
    return found
