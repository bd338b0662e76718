"""`regard train --data FILES --preset tiny --out runs/first`: from text files to a trained model.

The flags come from the table in regard.gpt.train.options. What needs torch is imported when the command runs.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.commands.shared.options import argument, check_model, option
from regard.commands.terminal.usage import option_parameter
from regard.gpt.train.options import FitOptions, ModelOptions, command_table, for_command
from regard.support.argument_names import named_as_flags

if TYPE_CHECKING:
    from regard.gpt.model import GPT
    from regard.gpt.train.loop import FitResult
    from regard.gpt.train.processes import Processes


def train(data: list[str] | None = None, more: list[str] | None = None, **flags: Any) -> None:
    """Train a GPT on your text files. Interrupt it at any time: the same command resumes."""
    files = [*(data or []), *(more or [])]
    if not files:
        raise ValueError("there is nothing to train on; name text files: regard train FILE --out runs/first")
    if missing := [file for file in files if not Path(file).exists()]:
        raise ValueError(f"data file {missing[0]} is not there; check the path")
    if flags.get("model"):
        check_model(flags["model"])
    result = train_on_files(files, **flags)
    if not result.finished:
        raise typer.Exit(130)  # as after any Ctrl-C


def _signature() -> Signature:
    data = option("Text files to train on, like FILE. [default: none]", show_default=False)
    more = argument("Text files to train on: .txt, .gz or .xz.", metavar="FILE", show_default=False)
    specs = sorted(command_table(), key=lambda spec: spec.default is not MISSING)  # required ones first
    first = Parameter("data", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, data])
    others = Parameter("more", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, more])
    return Signature([others, *map(option_parameter, specs), first])


train.__signature__ = _signature()  # type: ignore[attr-defined]


def train_on_files(data: Sequence[str | Path], out: str | Path, **flags: Any) -> FitResult:
    """Train a new model, or fine-tune one; print what is done, and the next command.

    flags: options of the command, and of `fit`; what is missing or None is chosen by model and device.
    """
    with named_as_flags("out", *flags):
        return _train_on_files(data, out, **flags)


def _train_on_files(data: Sequence[str | Path], out: str | Path, **flags: Any) -> FitResult:
    from regard.gpt.train.fit import fit_in, join_processes
    from regard.gpt.train.prepare import prepare
    from regard.gpt.train.processes import find_device
    from regard.gpt.train.tokens import check_text_file
    from regard.show.terminal.training import plot_loss
    from regard.support.extras import how_to_install

    # Wrong options and missing files are reported before anything is read or written.
    if flags.get("evaluate_every") and flags.get("val_fraction") == 0:
        reason = "needs validation data, but --val-fraction is 0; leave one of them out"
        raise ValueError(f"--evaluate-every {flags['evaluate_every']} {reason}")
    device = find_device(flags.pop("device", None))
    of_model = {field.name for field in fields(ModelOptions)} & flags.keys()
    source = ModelOptions(**{name: flags.pop(name) for name in of_model})
    options = for_command(source, cuda=device.type == "cuda", out=out, device=device, **flags)
    for file in data:
        check_text_file(Path(file))
    try:
        with join_processes(options) as processes:
            model, tokens = prepare(data, source, options, processes)

            def announce(checkpoint: str) -> None:
                print(_header(model, len(tokens.ids), options, processes, checkpoint), flush=True)

            # With --fresh, `prepare` has cleared the directory already, and written the tokenizer with its hash.
            result = fit_in(processes, model, tokens, replace(options, resume=True), on_start=announce)
            if processes.is_main:
                if not plot_loss(result.log(), result.out / "loss.png"):
                    print(f"  no loss.png without matplotlib: {how_to_install('plot')}", file=sys.stderr, flush=True)
                print(_footer(result), flush=True)
            return result
    except OSError as error:  # a full disk, most likely
        raise ValueError(_disk_error(error, Path(out))) from error


def _header(model: GPT, tokens: int, options: FitOptions, processes: Processes, checkpoint: str) -> str:
    c = model.config
    ranks = f", {processes.data_ranks} data ranks" if processes.data_ranks > 1 else ""
    rows = {
        "model": f"{c.num_layers} layers × {c.num_heads} heads, width {c.d_model}, context {c.context_length}",
        "parameters": f"{sum(p.numel() for p in model.parameters()):,}",
        "data": f"{tokens:,} tokens of a vocabulary of {c.vocab_size:,}",
        "device": f"{processes.device}, {options.dtype}{ranks}",
        "steps": f"{options.steps:,}" + (f", from {checkpoint}" if checkpoint else ""),
        "out": str(options.out),
    }
    return "\n" + "\n".join(f"  {name:<12}{value}" for name, value in rows.items()) + "\n"


def _footer(result: FitResult) -> str:
    from regard.gpt.train.progress import duration

    model = shlex.quote(str(result.model))
    if not result.finished:
        return (
            f"\n  Stopped after step {result.step:,} of {result.steps:,}, with a checkpoint."
            "\n  Resume: the same command again"
            f'\n  Or try it as it is: regard generate --model {model} "Once upon a time"'
        )
    lines = ["", f"  {result.taken:,} steps in {duration(result.seconds)}"]
    if result.taken < result.steps:
        lines[1] += f", {result.steps:,} in all" if result.taken else ": all were done already"
    if result.val_loss is not None:
        lines.append(f"  validation loss  {result.val_loss:.4f}")
        if result.best["step"] != result.steps:
            best = result.best
            lines.append(f"  lowest           {best['val_loss']:.4f} at step {best['step']:,}: {result.best_model}")
    lines += [f"  model            {result.model}", "", f'  Next: regard generate --model {model} "Once upon a time"']
    return "\n".join(lines)


def _disk_error(error: OSError, out: Path) -> str:
    """What could not be written, and how to resume."""
    from regard.gpt.train.state import checkpoints
    from regard.support.files import NotWritten

    paths = checkpoints(out) if out.is_dir() else []
    then = f"The same command then resumes from {paths[-1].name}" if paths else "Then give the same command again"
    if isinstance(error, NotWritten):
        return f"{error.strerror or error} {then}"
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    return f"{what}; put that right, or choose another --out. {then}"
