"""The training loop: steps, and between them validation, samples, the log and checkpoints.

`fit` in fit.py is the entry point.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.gpt.checkpoint.saving import save as save_model
from regard.gpt.model import GPT
from regard.gpt.train import resume, state
from regard.gpt.train.atlases import LENGTH, TEXTS, write_atlas
from regard.gpt.train.batches import Batches, derive_seed
from regard.gpt.train.hashes import FileHashes
from regard.gpt.train.options import FitOptions, Recipe, interval, learning_rate_at
from regard.gpt.train.processes import Processes
from regard.gpt.train.progress import ProgressBar
from regard.gpt.train.resume import Resumption
from regard.gpt.train.state import BEST, MODEL
from regard.gpt.train.tokens import Tokens
from regard.support.argument_names import named

if TYPE_CHECKING:
    from regard.heads.atlas.timeline import Timeline

SAMPLE_TOKENS = 60
_READ_FOR_PROBE = 1 << 16  # validation tokens: those of a probe are among them
STOPPING = "\n  stopping after this step, with a checkpoint; once more stops at once\n"


class Intervals(NamedTuple):
    """Steps between two of each; 0 is never. What is not never also happens after the last step."""

    evaluate: int
    checkpoint: int
    sample: int
    atlas: int
    log: int

    @staticmethod
    def of(options: FitOptions, device: torch.device) -> Intervals:
        """The intervals of a run, defaults filled in."""
        evaluate, checkpoint = (
            interval(every, options.steps) for every in (options.evaluate_every, options.checkpoint_every)
        )
        log = options.log_every or (10 if device.type == "cuda" else 1)  # a GPU waits when a loss is fetched
        return Intervals(evaluate, checkpoint, options.sample_every or 0, options.atlas_every or 0, log)


@dataclass(frozen=True)
class FitResult:
    """How a run ended; `log()` has every step of it."""

    out: Path
    step: int
    steps: int
    taken: int  # steps of this call; the others were done by earlier ones
    loss: float
    val_loss: float | None
    best: dict[str, Any]  # the lowest validation loss, and its step; its weights are in out/best
    checkpoint: Path | None
    seconds: float  # of this call
    notes: tuple[str, ...] = ()  # what was said when the run resumed: a damaged file, a longer schedule

    @property
    def finished(self) -> bool:
        """Were all steps taken? If not, the same call resumes the run."""
        return self.step == self.steps

    @property
    def model(self) -> Path:
        """Directory of the trained model, for GPT.from_pretrained."""
        return self.out / MODEL

    @property
    def best_model(self) -> Path:
        """Directory of the model with the lowest validation loss."""
        return self.out / BEST

    def timeline(self) -> Timeline:
        """What every head did at the steps of `atlas_every`: a table, and with `.to_html(path)` a page."""
        return state.read_run(self.out)

    def log(self) -> list[dict[str, Any]]:
        """A line for every step since the first: loss, lr, grad_norm and more."""
        return state.read_log(self.out / state.LOG)


class Diverged(ValueError):
    """The loss or the gradient norm is NaN or infinite."""


class TrainingLoop:
    """The model, the optimizer, and the number of steps taken."""

    def __init__(self, model: GPT, tokens: Tokens, options: FitOptions, processes: Processes) -> None:
        if tokens.vocab_size > model.config.vocab_size:
            sizes = f"{tokens.vocab_size} tokens, but the model has vocab_size={model.config.vocab_size}"
            raise ValueError(f"the data has a vocabulary of {sizes}; was the text tokenized for another model?")
        self.model, self.options, self.processes, self.out = model, options, processes, Path(options.out)
        self.context_length = context_length = options.context_length or model.config.context_length
        self.tokens_per_step = options.batch * options.accumulate * context_length
        self.intervals = Intervals.of(options, processes.device)
        training, self.validation = tokens.split(context_length, options.val_fraction)
        rank, ranks = processes.data_rank, processes.data_ranks
        self.batches = Batches(training, options.batch, context_length, options.seed, rank, ranks, options.repeat)
        self.validation_starts = self._validation_starts()
        if self.intervals.atlas and not (self.validation_starts and processes.is_single):
            reason = "needs validation data" if processes.is_single else "needs a run of one process"
            raise ValueError(f"{named('atlas_every', options.atlas_every)} {reason}; leave it out")
        self.settings = run_settings(options, model, tokens)
        self.resumption, tensors = Resumption(), dict[str, Tensor]()
        self.hashes: FileHashes | None = None
        if processes.is_main:
            # Before anything changes: a refused run leaves the model and the directory as they were.
            self.resumption, tensors = resume.find(self.out, self.settings, options, model)
            self.hashes = FileHashes.read(self.out)
            if self.resumption.checkpoint is None:  # models of an earlier run may be there
                self.hashes.forget(BEST)
                self.hashes.forget(MODEL)
        self.resumption = processes.broadcast(self.resumption)
        processes.prepare(model)
        self.optimizer = adamw(model, options)
        self.loss: Callable[[Tensor, Tensor], Tensor] = model.loss
        self.step, self.best, self.checkpoint = 0, self.resumption.best, ""
        self._state: dict[str, Tensor] | None = None  # the full state of this step, once it is gathered
        if (checkpoint := self.resumption.checkpoint) is not None:
            processes.load_full_state(model, self.optimizer, tensors)
            self.step, self.checkpoint = checkpoint.step, checkpoint.path.name
        if self.resumption.rewrite_best:
            self._write_model(BEST)

    def run(self) -> FitResult:
        """Take all remaining steps, or those until Ctrl-C."""
        options, began, first = self.options, time.perf_counter(), self.step
        log = state.Log(self.out / state.LOG, self.resumption.checkpoint) if self.processes.is_main else None
        line = log.last if log is not None else {}
        earlier = line.get("time", 0.0)
        shown = options.progress and self.processes.is_main
        with ProgressBar(options.steps, self.step, shown) as bar, stop_requested(shown) as stop:
            since = time.perf_counter()
            while self.step < options.steps:
                lines = self._train_until_due()
                seconds = (time.perf_counter() - since) / len(lines)
                line = lines[-1]
                self._evaluate_and_sample(line)
                for each in lines:
                    each["tokens_per_second"] = self.tokens_per_step / seconds
                    each["time"] = earlier + time.perf_counter() - began
                    if options.on_step is not None:
                        options.on_step(each)
                bar.update(line, seconds)
                stopping = self.processes.any(stop())
                saving = self._is_due(self.intervals.checkpoint) or stopping or self.step == options.steps
                if log is not None:
                    log.write(lines, sync=saving)
                if saving:
                    self._save(log)
                if stopping:
                    break
                since = time.perf_counter()
            self.model.eval()
            if self.step:  # also an interrupted run leaves a model that can be used
                self._write_model(MODEL)
            self.processes.barrier()
        return FitResult(
            out=self.out,
            step=self.step,
            steps=options.steps,
            taken=self.step - first,
            loss=line.get("loss", math.nan),
            val_loss=line.get("val_loss"),
            best=self.best,
            checkpoint=self.out / self.checkpoint if self.step else None,
            seconds=time.perf_counter() - began,
            notes=tuple(self.resumption.notes),
        )

    def _train_until_due(self) -> list[dict[str, Any]]:
        """Take steps until something is due, and only then fetch their losses. A line of the log for each."""
        lines, numbers = list[dict[str, Any]](), list[Tensor]()
        self._state = None
        self.model.train()
        while not lines or not (self.step == self.options.steps or any(map(self._is_due, self.intervals))):
            rate = learning_rate_at(self.step, self.options)
            numbers.append(torch.stack(self._train_step(self.step, rate)))
            self.step += 1
            lines.append({"step": self.step, "tokens": self.step * self.tokens_per_step, "lr": rate})
        for line, (loss, norm) in zip(lines, torch.stack(numbers).tolist(), strict=True):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise Diverged(
                    f"the loss is {loss:.4g} and the gradient norm {norm:.4g} at step {line['step']}, with a learning "
                    f"rate of {line['lr']:.3g}; that step was not saved. Last good checkpoint: "
                    f"{self.checkpoint or 'none yet'}. Try a lower learning rate or a longer warmup"
                )
            line |= {"loss": loss, "grad_norm": norm}
        return lines

    def _train_step(self, step: int, learning_rate: float) -> tuple[Tensor, Tensor]:
        """One optimizer step: its loss and gradient norm. Nothing here synchronizes with the GPU."""
        options, processes = self.options, self.processes
        torch.manual_seed(derive_seed("step", options.seed, step, processes.data_rank))
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        total = torch.zeros((), device=processes.device)
        for micro_batch in range(options.accumulate):
            ids, targets = self._to_device(*self.batches(step * options.accumulate + micro_batch))
            with self._autocast():
                loss = self.loss(ids, targets) / options.accumulate
            loss.backward()
            total += loss.detach()
        norm = processes.clip_gradients(self.model.parameters(), options.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return processes.mean(total), norm.to(total.dtype)

    def _evaluate_and_sample(self, line: dict[str, Any]) -> None:
        """Add the validation loss and a sample to a line of the log, where they are due."""
        if self._is_due(self.intervals.evaluate) and self.validation_starts:
            line["val_loss"] = loss = self._evaluate()
            if loss < self.best.get("val_loss", math.inf):
                self.best = {"val_loss": loss, "step": self.step}
                self._write_model(BEST)
        if self._is_due(self.intervals.atlas):
            known = self.validation[:_READ_FOR_PROBE].unique().tolist()
            write_atlas(self.model, self._atlas_texts(), self.out, self.step, known)
        can_sample = self.processes.is_single and self.model.tokenizer is not None
        if self._is_due(self.intervals.sample) and can_sample:
            self.model.eval()
            prompt, seed = self.options.sample_prompt, self.options.seed
            text = self.model.generate(prompt, SAMPLE_TOKENS, temperature=0.8, top_k=50, seed=seed)
            line["sample"] = prompt + text

    def _atlas_texts(self) -> Tensor:
        """A few parts of the validation data, always the same ones."""
        T = min(self.context_length, LENGTH)
        available = len(self.validation) // T
        starts = torch.linspace(0, available - 1, min(available, TEXTS)).long() * T
        rows = torch.stack([self.validation[at : at + T] for at in starts.tolist()])
        return rows.to(self.processes.device, torch.int64)

    @torch.no_grad()
    def _evaluate(self) -> float:
        """The mean loss over the validation windows, always the same ones."""
        self.model.eval()
        T, ranks, starts = self.context_length, self.processes.data_ranks, self.validation_starts
        own = starts[self.processes.data_rank :: ranks] if len(starts) % ranks == 0 else starts
        total = torch.zeros((), device=self.processes.device)
        for batch in torch.tensor(own).split(self.options.batch // ranks):
            rows = torch.stack([self.validation[at : at + T + 1] for at in batch.tolist()]).to(torch.int64)
            with self._autocast():
                total += self.model.loss(*self._to_device(rows[:, :-1], rows[:, 1:])) * (len(rows) / len(own))
        return float(self.processes.mean(total))

    def _validation_starts(self) -> list[int]:
        """Where the validation windows begin: evenly spaced, a multiple of the data ranks where there are enough."""
        T, ranks = self.context_length, self.processes.data_ranks
        available = max(0, (len(self.validation) - 1) // T)
        count = min(available, self.options.evaluate_windows)
        count -= count % ranks if count > ranks else 0
        return [number * available // count * T for number in range(count)]

    def _save(self, log: state.Log | None) -> None:
        """Write a checkpoint of this step; the main process has the log."""
        tensors, keep = self._full_state(), self.options.keep
        if log is not None:
            path = state.save_checkpoint(self.out, self.step, tensors, self.settings, self.best, keep, log.mark())
            self.checkpoint = path.name
        self.checkpoint = self.processes.broadcast(self.checkpoint)

    def _write_model(self, name: str) -> None:
        """Write the model as it is now, for GPT.from_pretrained."""
        weights = {key.removeprefix("model."): t for key, t in self._full_state().items() if key.startswith("model.")}
        if self.hashes is not None:
            self.hashes.forget(name)
            save_model(self.model, self.out / name, state=weights)
            if name == BEST:
                self.hashes.best = self.best
            self.hashes.record(name)

    def _full_state(self) -> dict[str, Tensor]:
        """Unsharded weights and optimizer state; gathered at most once per step."""
        if self._state is None:
            self._state = self.processes.full_state(self.model, self.optimizer)
        return self._state

    def _is_due(self, interval: int) -> bool:
        return interval > 0 and (self.step % interval == 0 or self.step == self.options.steps)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.processes.device.type, torch.bfloat16, enabled=self.options.dtype == "bf16")

    def _to_device(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Copy tensors to the device; to a GPU without waiting."""
        device = self.processes.device
        if device.type != "cuda":
            return tuple(t.to(device) for t in tensors)
        return tuple(t.contiguous().pin_memory().to(device, non_blocking=True) for t in tensors)


def adamw(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW for all trainable parameters. Only 2-D parameters decay: not norms, not biases."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.dim() >= 2], "weight_decay": recipe.weight_decay},
        {"params": [p for p in trainable if p.dim() < 2], "weight_decay": 0.0},
    ]
    fused = all(p.device.type in ("cpu", "cuda") for p in trainable)
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, fused=fused)


def run_settings(options: FitOptions, model: GPT, tokens: Tokens) -> dict[str, Any]:
    """Everything that must be the same for a run to resume, and the threads, as JSON would give it back."""
    tokenizer = None if model.tokenizer is None else hashlib.sha256(model.tokenizer.to_json().encode()).hexdigest()
    data = {"tokens": len(tokens.ids), "sha256": tokens.sha256}
    settings = {**options.recipe(), "config": asdict(model.config), "data": data, "tokenizer": tokenizer}
    # A sum over several threads is rounded otherwise; on a GPU they compute nothing.
    settings["threads"] = torch.get_num_threads() if model.token_embedding.weight.device.type == "cpu" else None
    return dict(json.loads(json.dumps(settings)))


@contextmanager
def stop_requested(shown: bool = False) -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether Ctrl-C or SIGTERM has arrived; a second one raises KeyboardInterrupt.

    shown: say at once that the run stops after this step, which can take minutes.
    """
    requested = threading.Event()

    def handle(number: int, frame: Any) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()
        if shown:
            with suppress(OSError):  # not by print, which this may have interrupted
                os.write(2, STOPPING.encode())

    is_main = threading.current_thread() is threading.main_thread()  # only it may set handlers
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield requested.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
