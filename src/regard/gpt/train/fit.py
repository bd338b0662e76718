"""fit: train a model to continue text, in a directory from which the run can resume at any time.

A step reads its batch, accumulates gradients, clips them and updates the weights. Around it: validation, samples, a
log, and checkpoints. What a step does depends on the options and its number alone, so an interrupted run that resumes
learns what an uninterrupted one would have learned: bit for bit on a CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor
from torch.utils._triton import has_triton

from regard.gpt.model import GPT
from regard.gpt.option_table import with_keywords
from regard.gpt.train import state
from regard.gpt.train.loop import FitResult, TrainingLoop
from regard.gpt.train.options import FitOptions
from regard.gpt.train.processes import Processes, find_device
from regard.gpt.train.progress import note
from regard.gpt.train.tokens import NEW, TOKENS, Tokens, tokenize_files
from regard.support.argument_names import named

Data: TypeAlias = "Tokens | Tensor | str | Path | Sequence[str | Path]"


@with_keywords(FitOptions)
def fit(model: GPT, data: Data, options: FitOptions) -> FitResult:
    """Train a model to continue text; a second call with the same `out` resumes where the first stopped.

    >>> import tempfile
    >>> from regard import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=7, context_length=8, num_layers=1, d_model=16, num_heads=2))
    >>> counting = torch.arange(2000) % 7
    >>> result = fit(
    ...     model, counting, out=tempfile.mkdtemp(), steps=30, batch=8, learning_rate=3e-2, progress=False
    ... )
    >>> result.val_loss < 0.1
    True

    data: text files (tokenized once, by model.tokenizer), token ids, or Tokens.

    `out` receives log.jsonl, checkpoints, best/ (lowest validation loss) and, at the end, model/. Ctrl-C finishes the
    step, and writes a checkpoint and model/ as it is. A loss or gradient that is NaN or infinite raises Diverged; that
    step is not saved.

    Options:
    """
    with join_processes(options) as processes:
        return fit_in(processes, model, data, options, on_start=lambda checkpoint: None)


def fit_in(
    processes: Processes, model: GPT, data: Data, options: FitOptions, on_start: Callable[[str], None]
) -> FitResult:
    """`fit` in processes that are joined already.

    on_start: called before the first step with the name of the checkpoint that the run resumes from, "" for a new run.
    """
    longest = model.config.context_length
    context_length = options.context_length or longest
    if context_length > longest:
        raise ValueError(f"{named('context_length', context_length)} must be at most the model's, {longest}")
    options = replace(options, context_length=context_length)
    out, device = Path(options.out), processes.device
    processes.check(model.config, options.batch)
    with ExitStack() as stack:
        if processes.is_main:
            stack.enter_context(state.locked(out))
            if not options.resume:
                state.clear(out)
        tokens = _tokens(data, model, out, processes, options.progress)
        # Each step sets the seed; the caller's random state is restored at the end.
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        loop = TrainingLoop(model, tokens, options, processes)
        if processes.is_main:
            for text in loop.resumption.notes:
                note(text, shown=options.progress)
            on_start(loop.checkpoint)
        if device.type == "cuda" and has_triton() if options.compile is None else options.compile:
            loop.loss = torch.compile(model.loss, dynamic=False)  # all batches have one shape
        return loop.run()


def join_processes(options: FitOptions) -> AbstractContextManager[Processes]:
    """The processes of a run: this one alone, or those that torchrun has started."""
    if options.parallel is None and "RANK" not in os.environ:
        return nullcontext(Processes(find_device(options.device)))
    from regard.gpt.train.parallel import init_parallel

    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    return init_parallel(options.parallel, options.device, dtype)


def _tokens(data: Data, model: GPT, out: Path, processes: Processes, progress: bool) -> Tokens:
    """The data as tokens; files are tokenized by the main process alone."""
    if isinstance(data, Tokens):
        return data
    if isinstance(data, Tensor):
        return Tokens.of(data)
    files = [data] if isinstance(data, str | Path) else list(data)
    if model.tokenizer is None:
        raise ValueError("text needs a tokenizer; set model.tokenizer = Tokenizer.load(…), or pass token ids")
    if processes.is_main:
        written = tokenize_files(files, model.tokenizer, out)
        if written.new not in ("", NEW):
            note(f"{TOKENS} written: {written.new}", shown=progress)
    processes.barrier()
    return tokenize_files(files, model.tokenizer, out, verify=False)
