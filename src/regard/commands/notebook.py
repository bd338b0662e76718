"""`regard notebook [NAME]`: the notebooks of the package, listed or copied to where you work."""

import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from regard.commands.shared.options import argument
from regard.support.extras import how_to_install

FOLDER = Path(__file__).parents[1] / "school" / "notebooks"
_NEEDED = {"jupyterlab": "JupyterLab", "matplotlib": "matplotlib"}  # to open one, and to run it


def notebook(
    name: Annotated[
        str | None, argument("Number or name of a notebook. [default: list all of them]", metavar="NAME")
    ] = None,
    folder: Annotated[Path, argument("Folder to copy it to.", show_default="here", metavar="FOLDER")] = Path(),
) -> None:
    """List the notebooks, or copy one out to run and change it."""
    files = sorted(FOLDER.glob("*.ipynb"))
    if name is None:
        typer.echo()
        for file in files:
            typer.echo(f"  {file.stem:24}{title(file)}")
        typer.echo("\n  Copy one out: regard notebook 1")
        return
    chosen = [file for file in files if name in (file.stem, file.name, *file.stem.split("-", 1))]
    if not chosen:
        raise ValueError(f"there is no notebook {name}; there are {', '.join(file.stem for file in files)}")
    target = folder / chosen[0].name
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    try:
        with target.open("xb") as new:  # never over one that somebody has worked in
            new.write(chosen[0].read_bytes())
    except FileExistsError:
        raise ValueError(f"{target} exists already, and may hold your work; rename it or give another folder") from None
    typer.echo(f"\n  Wrote {target}\n\n  Open it in VS Code, or: jupyter lab {shlex.quote(str(target))}")
    if missing := [name for module, name in _NEEDED.items() if find_spec(module) is None]:
        typer.echo(f"  {' and '.join(missing)}: not installed here; {how_to_install('notebook')}")


def title(file: Path) -> str:
    """The heading of a notebook, without its number."""
    first = "".join(json.loads(file.read_text(encoding="utf-8"))["cells"][0]["source"])
    return first.partition("\n")[0].removeprefix("# ").partition(" · ")[2]
