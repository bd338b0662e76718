"""fit: teach a model to continue text, in a directory from which the run can go on at any time.

A step reads its windows, adds up gradients, clips them and moves the weights. Around it: validation, samples, a log,
and checkpoints. What a step does follows from the recipe and its number alone, so a run that was stopped and goes on
learns what an unbroken one would have learnt: bit for bit on a CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from regard.gpt.model import GPT
from regard.gpt.train import state
from regard.gpt.train.data import Tokens, tokenise
from regard.gpt.train.loop import Every, Fit, Run
from regard.gpt.train.processes import Alone, World, find_device
from regard.gpt.train.recipe import Recipe

Data: TypeAlias = "Tokens | Tensor | str | Path | Sequence[str | Path]"


def fit(
    model: GPT,
    data: Data,
    *,
    out: Path | str,
    steps: int,
    batch: int,
    learning_rate: float,
    warmup: int = 0,
    accumulate: int = 1,
    context_length: int | None = None,
    min_learning_rate: float | None = None,
    weight_decay: float = 0.1,
    betas: tuple[float, float] = (0.9, 0.95),
    clip: float = 1.0,
    seed: int = 0,
    dtype: str = "fp32",
    val_fraction: float = 0.01,
    repeat: float = 0.0,
    device: torch.device | str | None = None,
    compile: bool | None = None,
    evaluate_every: int | None = None,
    evaluate_windows: int = 64,
    checkpoint_every: int | None = None,
    keep: int = 2,
    sample_every: int | None = None,
    sample_prompt: str = "The",
    log_every: int | None = None,
    resume: bool = True,
    progress: bool = True,
    on_step: Callable[[dict[str, Any]], None] | None = None,
    parallel: str | World | None = None,
) -> Fit:
    """Teach a model to continue text; a second call with the same `out` goes on where the first stopped.

    >>> import tempfile
    >>> from regard import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=7, context_length=8, num_layers=1, d_model=16, num_heads=2))
    >>> counting = torch.arange(2000) % 7
    >>> found = fit(
    ...     model, counting, out=tempfile.mkdtemp(), steps=30, batch=8, learning_rate=3e-2, progress=False
    ... )
    >>> found.val_loss < 0.1
    True

    data: text files (tokenised once, by model.tokenizer), token ids, or Tokens.
    batch, accumulate: rows of a forward pass, over all processes, and how many of those make a step.
    dtype: "bf16" computes in bfloat16 by autocast; weights stay as they are.
    repeat: the share of rows that say a stretch of their text again and again, so that copying heads form early.
    compile: torch.compile the model; on a GPU unless told.
    evaluate_every, checkpoint_every: in steps; a tenth of the run unless told, between 100 and 1000. sample_every: never
        unless told. 0 is never, save at the end.
    keep: how many checkpoints stay.
    log_every: after how many steps losses are fetched; 10 on a GPU, which would wait each time, else 1.
    resume: False starts anew and removes what an earlier run left in `out`.
    on_step: called with each line of the log.
    parallel: "fsdp=2,tp=2" under torchrun.

    In `out`: log.jsonl, loss.png, checkpoints, best/ (lowest validation loss) and, at the end, model/. Ctrl-C finishes
    the step, and writes a checkpoint and model/ as it is. A loss or gradient that is no number is a Diverged error; it is not saved.
    """
    recipe = Recipe(
        steps, batch, model.config.context_length if context_length is None else context_length, learning_rate,
        accumulate, min_learning_rate, warmup, weight_decay, betas, clip, seed, dtype, val_fraction, repeat,
    )  # fmt: skip
    if recipe.context_length > model.config.context_length:
        raise ValueError(
            f"context_length ({recipe.context_length}) must be at most the model's, {model.config.context_length}"
        )
    check_counts(
        keep, evaluate_every=evaluate_every, checkpoint_every=checkpoint_every, sample_every=sample_every,
        log_every=log_every, evaluate_windows=evaluate_windows,
    )  # fmt: skip
    often = min(1000, max(min(steps, 100), steps // 10))
    every = Every(
        evaluate=often if evaluate_every is None else evaluate_every,
        checkpoint=often if checkpoint_every is None else checkpoint_every,
        sample=sample_every or 0,
        log=log_every or 0,
    )
    out = Path(out)
    with ExitStack() as stack:
        world = stack.enter_context(joined(parallel, device, dtype))
        world.check(model.config, recipe.batch)
        if world.main:
            stack.enter_context(state.locked(out))
            if not resume:
                state.clear(out)
        tokens = _tokens(data, model, out, world)
        # What is random in a step is seeded by its number; the caller's own chance stays as it was.
        stack.enter_context(torch.random.fork_rng([world.device] if world.device.type == "cuda" else []))
        run = Run(model, tokens, recipe, world, out, every, keep, evaluate_windows)
        if compile if compile is not None else world.device.type == "cuda" and _has_triton():
            run.loss = torch.compile(model.loss, dynamic=False)  # all batches are alike
        return run.go(sample_prompt, progress and world.main, on_step)


def check_counts(keep: int = 1, **counts: int | None) -> None:
    """After how many steps, and how many: none may be below 0, and one checkpoint must stay."""
    for name, count in counts.items():
        if count is not None and count < 0:
            raise ValueError(f"{name} ({count}) must be at least 0; 0 is {'never' if 'every' in name else 'none'}")
    if keep < 1:
        raise ValueError(f"keep ({keep}) must be at least 1: the last checkpoint is what a run goes on from")


@contextmanager
def joined(parallel: str | World | None, device: torch.device | str | None, dtype: str) -> Iterator[World]:
    """The world of this process: alone, or with those that torchrun has started."""
    if not isinstance(parallel, str | None):
        yield parallel
        return
    if parallel is None and "RANK" not in os.environ:
        yield Alone(find_device(device))
        return
    from regard.gpt.train.parallel import together

    with together(parallel, device, torch.bfloat16 if dtype == "bf16" else torch.float32) as world:
        yield world


def _tokens(data: Data, model: GPT, out: Path, world: World) -> Tokens:
    """The data as tokens; files are read by the main process alone, and found ready by the others."""
    if isinstance(data, Tokens):
        return data
    if isinstance(data, Tensor):
        return Tokens.of(data)
    files = [data] if isinstance(data, str | Path) else list(data)
    if model.tokenizer is None:
        raise ValueError("text needs a tokenizer; set model.tokenizer = Tokenizer.load(…), or pass token ids")
    if world.main:
        tokenise(files, model.tokenizer, out)
    world.barrier()
    return tokenise(files, model.tokenizer, out)


def _has_triton() -> bool:
    from torch.utils._triton import has_triton

    return bool(has_triton())
