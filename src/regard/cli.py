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


@app.command()
def train(
    data: Annotated[list[str], typer.Option(help="Text files: .txt, .gz or .xz; more may follow as arguments.")],
    out: Annotated[str, typer.Option(help="The run's directory; the model will be in OUT/model.")],
    more: Annotated[list[str] | None, typer.Argument(help="More data files.")] = None,
    preset: Annotated[str, typer.Option(help="tiny, gpt2-small, gpt2-medium, gpt2-large or gpt2-xl.")] = "tiny",
    model: Annotated[
        str | None, typer.Option(help="Go on with a trained model instead: a directory, or a name.")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="A tokenizer.json; else one is made of the data.")] = None,
    steps: Annotated[int, typer.Option(help="How many steps.")] = 1000,
    batch: Annotated[int | None, typer.Option(help="Rows of a forward pass; by preset.")] = None,
    accumulate: Annotated[int, typer.Option(help="Forward passes that make one step.")] = 1,
    context_length: Annotated[int | None, typer.Option(help="Tokens of a row; by preset.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Share of activations left out; none.")] = None,
    sinusoidal: Annotated[bool, typer.Option("--sinusoidal", help="Learned positions start as waves.")] = False,
    learning_rate: Annotated[float | None, typer.Option(help="The highest; by preset.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Steps until the highest; a tenth, at most 200.")] = None,
    weight_decay: Annotated[float, typer.Option(help="Of matrices.")] = 0.1,
    clip: Annotated[float, typer.Option(help="The longest gradient.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Another seed, another run.")] = 0,
    val_fraction: Annotated[float, typer.Option(help="Share of the data to be judged by.")] = 0.01,
    repeat: Annotated[float, typer.Option(help="Share of rows that repeat themselves; see docs/train.md.")] = 0.0,
    dtype: Annotated[str | None, typer.Option(help="fp32 or bf16; bf16 on a GPU.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …; a GPU if there is one.")] = None,
    compile: Annotated[bool | None, typer.Option(help="torch.compile; on a GPU.")] = None,
    parallel: Annotated[str | None, typer.Option(help="Under torchrun: fsdp=2,tp=2.")] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="In steps; a tenth of the run, 100 to 1000.")] = None,
    evaluate_windows: Annotated[int, typer.Option(help="Rows to be judged by.")] = 64,
    checkpoint_every: Annotated[int | None, typer.Option(help="In steps; a tenth of the run, 100 to 1000.")] = None,
    sample_every: Annotated[int | None, typer.Option(help="In steps; never.")] = None,
    keep: Annotated[int, typer.Option(help="Checkpoints that stay.")] = 2,
    fresh: Annotated[bool, typer.Option("--fresh/--resume", help="Start anew, or go on.")] = False,
) -> None:
    """Teach a model to write like your text files. Stopped at any time, the same command goes on."""
    from regard.commands.train import train as run

    found = run(
        [*data, *(more or [])], out, preset=preset, model=model, tokenizer=tokenizer, steps=steps, batch=batch,
        accumulate=accumulate, context_length=context_length, dropout=dropout, sinusoidal=sinusoidal,
        learning_rate=learning_rate, warmup=warmup, weight_decay=weight_decay, clip=clip, seed=seed,
        val_fraction=val_fraction, repeat=repeat, dtype=dtype, device=device, compile=compile, parallel=parallel,
        evaluate_every=evaluate_every, evaluate_windows=evaluate_windows, checkpoint_every=checkpoint_every,
        sample_every=sample_every, keep=keep, fresh=fresh,
    )  # fmt: skip
    if not found.finished:
        raise typer.Exit(130)  # as after any Ctrl-C


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
