"""What `regard train` trains: a model with its tokenizer, and text files as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import torch

from regard.gpt.config import GPTConfig
from regard.gpt.model import GPT
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.gpt.train import state
from regard.gpt.train.hashes import HASHES, FileHashes
from regard.gpt.train.options import FitOptions, ModelOptions
from regard.gpt.train.processes import Processes
from regard.gpt.train.progress import note
from regard.gpt.train.tokens import NEW, TOKENS, Tokens, tokenize_files, train_tokenizer

TOKENIZER = "tokenizer.json"
Files: TypeAlias = "Sequence[str | Path]"


def prepare(files: Files, source: ModelOptions, options: FitOptions, processes: Processes) -> tuple[GPT, Tokens]:
    """The model to train, with its tokenizer, and the tokens of the files.

    Only the main process writes files. What can be refused without reading the data is refused before it is read.
    """
    if (pretrained := _load(source)) is not None:
        config = pretrained.config
    else:
        changes = {"dropout": source.dropout, "context_length": options.context_length}
        given = {name: value for name, value in changes.items() if value is not None}
        config = GPTConfig.preset(source.size).with_(**given)
    processes.check(config, options.batch)
    out = Path(options.out)
    if processes.is_main:
        _write_tokens(files, source, options, pretrained, config.vocab_size)
    processes.barrier()
    tokenizer = Tokenizer.load(out / TOKENIZER)
    tokens = tokenize_files(files, tokenizer, out, verify=False)
    tokens.split(options.context_length or config.context_length, options.val_fraction)  # is there enough text?
    if (model := pretrained) is None:
        torch.manual_seed(options.seed)
        model = GPT(config.with_(vocab_size=tokenizer.vocab_size, end=tokenizer.end))
        if source.sinusoidal:
            model.start_sinusoidal()
    model.tokenizer = tokenizer
    return model, tokens


def _load(source: ModelOptions) -> GPT | None:
    if source.model is None:
        return None
    if source.preset is not None:
        raise ValueError(f"--preset {source.preset} is for a new model; one from a directory has its own size")
    if source.dropout is not None:
        raise ValueError("--dropout is for a new model; one from a directory has its own")
    if source.sinusoidal:
        raise ValueError("--sinusoidal is for a new model; one from a directory has trained positions")
    return GPT.from_pretrained(source.model, dtype=torch.float32)


def _write_tokens(
    files: Files, source: ModelOptions, options: FitOptions, pretrained: GPT | None, vocab_size: int
) -> None:
    """Write tokenizer.json, tokens.bin and tokens.json, unless they are there already."""
    out, path = Path(options.out), Path(options.out) / TOKENIZER
    with state.locked(out):
        if not options.resume:
            state.clear(out)
            path.unlink(missing_ok=True)
        hashes = FileHashes.read(out)
        is_damaged = path.is_file() and bool(hashes.changed(TOKENIZER))
        tokenizer = _find_tokenizer(files, source, pretrained, path, vocab_size, is_damaged)
        if not path.is_file() or is_damaged or Tokenizer.load(path) != tokenizer:
            hashes.forget(TOKENIZER)
            tokenizer.save(path)
            if is_damaged:
                note(f"{TOKENIZER} written: it was damaged", shown=True)
        if not hashes.recorded(TOKENIZER):
            hashes.record(TOKENIZER)
        if reason := tokenize_files(files, tokenizer, out).new:
            note(f"{TOKENS} written: {'the texts as token ids' if reason == NEW else reason}", shown=True)


def _find_tokenizer(
    files: Files, source: ModelOptions, pretrained: GPT | None, path: Path, vocab_size: int, is_damaged: bool
) -> Tokenizer:
    """The tokenizer of --tokenizer, of the pretrained model, or of this run; else a new one, trained on the data."""
    if source.tokenizer is not None:
        return Tokenizer.load(source.tokenizer)
    if pretrained is not None:
        if pretrained.tokenizer is None:
            raise ValueError("the model has no tokenizer.json, so no text can be read; name one with --tokenizer")
        return pretrained.tokenizer
    if is_damaged:
        remedy = "Restore it (the directories model and best have copies), or remove it: then it is trained again"
        raise ValueError(f"{path} is damaged: it does not have the hash in {HASHES}. {remedy} on the data")
    if path.is_file():
        return Tokenizer.load(path)
    note(f"no tokenizer given: training one of {vocab_size:,} tokens on the data", shown=True)
    return train_tokenizer(files, vocab_size)
