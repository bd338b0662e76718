"""The command line: `regard COMMAND`. Wires the commands and reports errors; each command is a file in commands/.

Nothing here imports torch, so that `--help` is quick.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from regard.commands.bench import bench
from regard.commands.generate import generate
from regard.commands.trace import trace
from regard.commands.train import train
from regard.commands.watch import watch

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def regard(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    """Attention you can read, see, check and ship."""
    if version:
        from importlib import metadata

        typer.echo(f"regard {metadata.version('regard')}")
        raise typer.Exit


app.command()(trace)
app.command()(watch)
app.command()(train)
app.command()(generate)
app.add_typer(bench, name="bench")


def main() -> None:
    """Run the command; a ValueError or OSError becomes one line on stderr instead of a traceback."""
    try:
        _run()
    except SystemExit as exiting:
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            raise
        # Under torchrun the process group is already destroyed, but threads of torch.distributed may still be freeing
        # tensors; they would abort the process if the interpreter shut down under them.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exiting.code if isinstance(exiting.code, int) else int(exiting.code is not None))


def _run() -> None:
    try:
        app()
    except ValueError as error:
        typer.echo(f"regard: {error}", err=True)
        raise SystemExit(2) from None
    except OSError as error:  # a file without read permission, a full disk
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(f"regard: {where}{error.strerror or error}", err=True)
        raise SystemExit(2) from None
