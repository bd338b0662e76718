"""`regard train --data FILES --preset tiny --out runs/first`: from text files to a model that can be asked to write."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.files import NotWritten
from regard.gpt.config import PRESETS, GPTConfig
from regard.gpt.model import GPT
from regard.gpt.tokenizer import Tokenizer
from regard.gpt.train import state
from regard.gpt.train.data import TOKENS, Tokens, tokenise, train_tokenizer
from regard.gpt.train.fit import check_counts, fit, joined
from regard.gpt.train.loop import BEST, Fit
from regard.gpt.train.processes import World, find_device
from regard.gpt.train.progress import clock
from regard.gpt.train.recipe import Recipe
from regard.gpt.train.text_files import check_file

WORDS = "tokenizer.json"


class Usual(NamedTuple):
    """What a preset is trained with unless told."""

    batch: int
    learning_rate: float


USUAL = {name: Usual(8, 6e-4) for name in PRESETS} | {"tiny": Usual(16, 1e-3)}
TUNING = Usual(8, 5e-5)  # a model that knows something already is moved gently


def train(
    data: Sequence[str | Path],
    out: str | Path,
    *,
    preset: str = "tiny",
    model: str | Path | None = None,
    tokenizer: str | Path | None = None,
    steps: int = 1000,
    batch: int | None = None,
    accumulate: int = 1,
    context_length: int | None = None,
    dropout: float | None = None,
    sinusoidal: bool = False,
    learning_rate: float | None = None,
    warmup: int | None = None,
    seed: int = 0,
    dtype: str | None = None,
    device: str | None = None,
    parallel: str | None = None,
    fresh: bool = False,
    **options: Any,
) -> Fit:
    """Train a preset, or go on with a model from a directory; say what is done, and what to do next.

    What is not told is chosen by preset and device. `options` are those of `fit`.
    """
    out, on = Path(out), find_device(device)
    usual = USUAL.get(preset, TUNING) if model is None else TUNING
    told: dict[str, Any] = {
        "steps": steps,
        "batch": usual.batch if batch is None else batch,
        "accumulate": accumulate,
        "learning_rate": usual.learning_rate if learning_rate is None else learning_rate,
        "warmup": min(200, steps // 10) if warmup is None else warmup,
        "seed": seed,
        "dtype": dtype or ("bf16" if on.type == "cuda" else "fp32"),
    }
    # What is wrong is said now, before anything is read or written.
    shaping = {field.name for field in fields(Recipe)} & options.keys()
    context = 1 if context_length is None else context_length
    Recipe(context_length=context, **told, **{name: options[name] for name in shaping})
    check_counts(**{name: options[name] for name in options if name.endswith(("_every", "_windows", "keep"))})
    for file in data:
        check_file(Path(file))
    try:
        with joined(parallel, on, told["dtype"]) as world:
            learner, tokens = _prepared(
                data,
                out,
                preset,
                model,
                tokenizer,
                context_length,
                dropout,
                sinusoidal,
                seed,
                fresh,
                world,
                told["batch"],
            )
            if world.main:
                print(_header(learner, len(tokens.ids), out, world, steps, told["dtype"]), flush=True)
            found = fit(learner, tokens, out=out, context_length=context_length, parallel=world, **told, **options)
            if world.main:
                print(_footer(found), flush=True)
            return found
    except OSError as error:  # a full disk, most likely
        raise ValueError(_not_lost(error, out)) from error


def _prepared(
    data: Sequence[str | Path],
    out: Path,
    preset: str,
    model: str | Path | None,
    tokenizer: str | Path | None,
    context_length: int | None,
    dropout: float | None,
    sinusoidal: bool,
    seed: int,
    fresh: bool,
    world: World,
    batch: int,
) -> tuple[GPT, Tokens]:
    """A model with its tokenizer, and the data as tokens. Files are written by the main process alone."""
    changes: dict[str, Any] = {} if dropout is None else {"dropout": dropout}
    learner: GPT | None = None
    if model is None:
        config = GPTConfig.preset(preset, **changes)  # a preset that is not there is said before anything is read
        config = config if context_length is None else config.with_(context_length=context_length)
    elif dropout is not None or sinusoidal:
        told, has = ("--sinusoidal", "learnt its positions") if dropout is None else ("--dropout", "its own")
        raise ValueError(f"{told} is for a new model; one from a directory has {has}")
    else:
        learner = GPT.from_pretrained(model, dtype=torch.float32)
        config = learner.config
    world.check(config, batch)
    if world.main:
        with state.locked(out):
            if fresh:
                state.clear(out)
                (out / WORDS).unlink(missing_ok=True)
            words = _tokenizer(data, tokenizer, learner, out, config.vocab_size)
            if not (out / WORDS).is_file() or Tokenizer.load(out / WORDS) != words:
                words.save(out / WORDS)
            note = tokenise(data, words, out).new
            if note:
                _say(f"{TOKENS} written: {note}")
    world.barrier()
    words = Tokenizer.load(out / WORDS)
    tokens = tokenise(data, words, out)
    if learner is None:
        torch.manual_seed(seed)  # the same start every time
        learner = GPT(config.with_(vocab_size=words.vocab_size, end=words.end))
        if sinusoidal:
            learner.start_sinusoidal()
    learner.tokenizer = words
    return learner, tokens


def _tokenizer(
    data: Sequence[str | Path], given: str | Path | None, learner: GPT | None, out: Path, vocab_size: int
) -> Tokenizer:
    """The one that was given, or the trained model's, or the one this run has made before, or a new one of the data."""
    if given is not None:
        return Tokenizer.load(given)
    if learner is not None:
        if learner.tokenizer is None:
            raise ValueError("the model has no tokenizer.json, so no text can be read; name one with --tokenizer")
        return learner.tokenizer
    if (out / WORDS).is_file():
        return Tokenizer.load(out / WORDS)
    _say(f"no tokenizer given: making one of {vocab_size:,} tokens from the data")
    return train_tokenizer(data, vocab_size)


def _header(model: GPT, tokens: int, out: Path, world: World, steps: int, dtype: str) -> str:
    c = model.config
    before = state.checkpoints(out)
    rows = {
        "model": f"{c.num_layers} layers × {c.num_heads} heads, width {c.d_model}, context {c.context_length}",
        "parameters": f"{sum(p.numel() for p in model.parameters()):,}",
        "data": f"{tokens:,} tokens of a vocabulary of {c.vocab_size:,}",
        "device": f"{world.device}, {dtype}" + (f", {world.data_ranks} data ranks" if world.data_ranks > 1 else ""),
        "steps": f"{steps:,}" + (f", from {before[-1].name}" if before else ""),
        "out": str(out),
    }
    return "\n" + "\n".join(f"  {name:<12}{value}" for name, value in rows.items()) + "\n"


def _footer(found: Fit) -> str:
    where = shlex.quote(str(found.model))
    if not found.finished:
        return (
            f"\n  Stopped after step {found.step:,} of {found.steps:,}; nothing is lost."
            "\n  Go on: the same command again"
            f'\n  Or try it as it is: regard generate --model {where} "Once upon a time"'
        )
    lines = ["", f"  {found.taken:,} steps in {clock(found.seconds)}"]
    if found.taken < found.steps:
        lines[1] += f", {found.steps:,} in all" if found.taken else ": all were done already"
    if found.val_loss is not None:
        lines.append(f"  validation loss  {found.val_loss:.4f}")
        if found.best["step"] != found.steps:
            lines.append(
                f"  lowest           {found.best['val_loss']:.4f} at step {found.best['step']:,}: {found.out / BEST}"
            )
    lines += [f"  model            {found.model}", "", f'  Next: regard generate --model {where} "Once upon a time"']
    return "\n".join(lines)


def _not_lost(error: OSError, out: Path) -> str:
    """What could not be written, and how the run goes on."""
    before = state.checkpoints(out) if out.is_dir() else []
    then = f"The same command then goes on from {before[-1].name}" if before else "Then give the same command again"
    if isinstance(error, NotWritten):
        return f"{error.strerror or error} {then}"
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    return f"{what}; put that right, or choose another --out. {then}"


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
