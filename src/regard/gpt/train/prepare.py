"""What `regard train` trains: a model with its tokenizer, and text files as tokens."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from regard.gpt.config import GPTConfig
from regard.gpt.model import GPT
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.gpt.train import state
from regard.gpt.train.hashes import HASHES, FileHashes
from regard.gpt.train.options import FitOptions, ModelOptions
from regard.gpt.train.processes import Processes
from regard.gpt.train.tokens import TOKENS, Tokens, tokenize_files, train_tokenizer

TOKENIZER = "tokenizer.json"


def prepare(
    files: Sequence[str | Path], source: ModelOptions, options: FitOptions, processes: Processes
) -> tuple[GPT, Tokens]:
    """The model to train, with its tokenizer, and the tokens of the files.

    Only the main process writes files. What can be refused without reading the data is refused before it is read.
    """
    pretrained = None if source.model is None else _load(source)
    config = _new_config(source, options) if pretrained is None else pretrained.config
    processes.check(config, options.batch)
    out = Path(options.out)
    if processes.is_main:
        _write_tokens(files, source, options, pretrained, config.vocab_size)
    processes.barrier()
    tokenizer = Tokenizer.load(out / TOKENIZER)
    tokens = tokenize_files(files, tokenizer, out, verify=False)
    tokens.split(options.context_length or config.context_length, options.val_fraction)  # is there enough text?
    model = _new_model(config, tokenizer, source, options) if pretrained is None else pretrained
    model.tokenizer = tokenizer
    return model, tokens


def _load(source: ModelOptions) -> GPT:
    assert source.model is not None
    if source.preset is not None:
        raise ValueError(f"--preset {source.preset} is for a new model; one from a directory has its own size")
    if source.dropout is not None:
        raise ValueError("--dropout is for a new model; one from a directory has its own")
    if source.sinusoidal:
        raise ValueError("--sinusoidal is for a new model; one from a directory has trained positions")
    return GPT.from_pretrained(source.model, dtype=torch.float32)


def _new_config(source: ModelOptions, options: FitOptions) -> GPTConfig:
    config = GPTConfig.preset(source.size)
    config = config if source.dropout is None else config.with_(dropout=source.dropout)
    return config if options.context_length is None else config.with_(context_length=options.context_length)


def _new_model(config: GPTConfig, tokenizer: Tokenizer, source: ModelOptions, options: FitOptions) -> GPT:
    torch.manual_seed(options.seed)
    model = GPT(config.with_(vocab_size=tokenizer.vocab_size, end=tokenizer.end))
    if source.sinusoidal:
        model.start_sinusoidal()
    return model


def _write_tokens(
    files: Sequence[str | Path], source: ModelOptions, options: FitOptions, pretrained: GPT | None, vocab_size: int
) -> None:
    """Write tokenizer.json, tokens.bin and tokens.json, unless they are there already."""
    out = Path(options.out)
    with state.locked(out):
        if not options.resume:
            state.clear(out)
            (out / TOKENIZER).unlink(missing_ok=True)
        hashes = FileHashes.read(out)
        is_damaged = (out / TOKENIZER).is_file() and bool(hashes.changed(TOKENIZER))
        tokenizer = _find_tokenizer(files, source, pretrained, out, vocab_size, is_damaged)
        if not (out / TOKENIZER).is_file() or is_damaged or Tokenizer.load(out / TOKENIZER) != tokenizer:
            hashes.forget(TOKENIZER)
            tokenizer.save(out / TOKENIZER)
            if is_damaged:
                _print(f"{TOKENIZER} written: it was damaged")
        if not hashes.recorded(TOKENIZER):
            hashes.record(TOKENIZER)
        reason = tokenize_files(files, tokenizer, out).new
        if reason:
            _print(f"{TOKENS} written: {reason}")


def _find_tokenizer(
    files: Sequence[str | Path],
    source: ModelOptions,
    pretrained: GPT | None,
    out: Path,
    vocab_size: int,
    is_damaged: bool,
) -> Tokenizer:
    """The tokenizer of --tokenizer, of the pretrained model, or of this run; else a new one, trained on the data."""
    if source.tokenizer is not None:
        return Tokenizer.load(source.tokenizer)
    if pretrained is not None:
        if pretrained.tokenizer is None:
            raise ValueError("the model has no tokenizer.json, so no text can be read; name one with --tokenizer")
        return pretrained.tokenizer
    if is_damaged:
        raise ValueError(
            f"{out / TOKENIZER} is damaged: it does not have the hash in {HASHES}. Restore it (the directories model "
            "and best have copies), or remove it: then it is trained again on the data"
        )
    if (out / TOKENIZER).is_file():
        return Tokenizer.load(out / TOKENIZER)
    _print(f"no tokenizer given: training one of {vocab_size:,} tokens on the data")
    return train_tokenizer(files, vocab_size)


def _print(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
