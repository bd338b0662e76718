"""A training run under way: learn, look how it goes, write it down, and begin again with the next step.

fit() in train.py is the way in. Here is the loop, and what happens around a step and at the end.
"""

from __future__ import annotations

import hashlib
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.gpt.checkpoint import pretrained as checkpoint
from regard.gpt.model import GPT
from regard.gpt.train import state
from regard.gpt.train.data import Batches, Tokens, mixed
from regard.gpt.train.processes import Alone, World
from regard.gpt.train.progress import Progress, plot
from regard.gpt.train.recipe import Recipe

LOG, PLOT, MODEL, BEST = "log.jsonl", "loss.png", "model", "best"
SAMPLE = 60  # tokens


@dataclass(frozen=True)
class Every:
    """After how many steps each thing is due; 0 is never. What is due is also due after the last step."""

    evaluate: int
    checkpoint: int
    sample: int
    log: int


@dataclass(frozen=True)
class Fit:
    """How a run ended; `log()` has every step of it."""

    out: Path
    step: int
    steps: int
    taken: int  # steps of this call; those before it were found done
    loss: float
    val_loss: float | None
    best: dict[str, Any]  # the lowest validation loss, and its step; its weights are in out/best
    checkpoint: Path | None
    seconds: float  # of this call

    @property
    def finished(self) -> bool:
        """Were all steps done? If not, the same call goes on where this one stopped."""
        return self.step == self.steps

    @property
    def model(self) -> Path:
        """Where the trained model is, for GPT.from_pretrained."""
        return self.out / MODEL

    def log(self) -> list[dict[str, Any]]:
        """A line for every step since the first: loss, lr, grad_norm and more."""
        return state.read_log(self.out / LOG)


class Diverged(ValueError):
    """The loss or the gradient is no longer a number."""


class Run:
    """The model, the optimizer, and how far they have come."""

    def __init__(
        self,
        model: GPT,
        tokens: Tokens,
        recipe: Recipe,
        world: World,
        out: Path,
        every: Every,
        keep: int,
        evaluate_windows: int,
    ) -> None:
        if tokens.vocab_size > model.config.vocab_size:
            raise ValueError(
                f"the data has {tokens.vocab_size} tokens to tell apart, but the model knows {model.config.vocab_size}; "
                "was the text tokenised for another model?"
            )
        self.model, self.recipe, self.world, self.out, self.keep = model, recipe, world, out, keep
        # A GPU would wait each time a loss is fetched.
        self.every = every if every.log else Every(**asdict(every) | {"log": 10 if world.device.type == "cuda" else 1})
        training, self.validation = tokens.split(recipe.context_length, recipe.val_fraction)
        self.batches = Batches(
            training, recipe.batch, recipe.context_length, recipe.seed, world.data_rank, world.data_ranks, recipe.repeat
        )
        self.judged = self._windows(evaluate_windows)
        self.told = told(recipe, model, tokens)
        self._resumed = self._found()  # before anything is moved: a refusal leaves all as it was
        world.prepare(model)
        self.optimizer = recipe.optimizer(model)
        self.loss: Callable[[Tensor, Tensor], Tensor] = model.loss
        self.step, self.best, self.checkpoint = 0, dict[str, Any](), "none yet"
        self._whole: dict[str, Tensor] | None = None

    def go(self, prompt: str, shown: bool, on_step: Callable[[dict[str, Any]], None] | None) -> Fit:
        """Take all steps that are left."""
        began = time.perf_counter()
        self._go_on()
        log = state.Log(self.out / LOG, self.step) if self.world.main else None
        line = log.last if log is not None else {}
        earlier, found = line.get("time", 0.0), self.step
        with Progress(self.recipe.steps, self.step, shown) as bar, _asked_to_stop() as asked:
            since = time.perf_counter()
            while self.step < self.recipe.steps:
                lines = self._some_steps()
                seconds = (time.perf_counter() - since) / len(lines)
                line = lines[-1]
                self._look(line, prompt)
                for one in lines:
                    one["tokens_per_second"] = self.recipe.tokens_a_step / seconds
                    one["time"] = earlier + time.perf_counter() - began
                    if on_step is not None:
                        on_step(one)
                bar.update(line, seconds)
                stopped = self.world.any(asked())
                saving = self._due(self.every.checkpoint) or stopped or self.step == self.recipe.steps
                if log is not None:
                    log.write(lines, safely=saving)
                if saving:
                    self._save()
                if stopped:
                    break
                since = time.perf_counter()
            self._finish(bar)
        return Fit(
            out=self.out,
            step=self.step,
            steps=self.recipe.steps,
            taken=self.step - found,
            loss=line.get("loss", math.nan),
            val_loss=line.get("val_loss"),
            best=self.best,
            checkpoint=self.out / self.checkpoint if self.step else None,
            seconds=time.perf_counter() - began,
        )

    def _some_steps(self) -> list[dict[str, Any]]:
        """Steps until something is due; only then are their losses fetched. A line for each."""
        lines: list[dict[str, Any]] = []
        numbers: list[Tensor] = []
        self._whole = None
        self.model.train()
        while True:
            lines.append({"step": self.step + 1, "tokens": (self.step + 1) * self.recipe.tokens_a_step})
            lines[-1]["lr"] = self.recipe.rate(self.step)
            numbers.append(torch.stack(self._learn(self.step)))
            self.step += 1
            if self.step == self.recipe.steps or any(self._due(n) for n in asdict(self.every).values()):
                break
        for line, (loss, norm) in zip(lines, torch.stack(numbers).tolist(), strict=True):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise Diverged(
                    f"the loss is {loss:.4g} and the gradient's length {norm:.4g} at step {line['step']}, with a learning "
                    f"rate of {line['lr']:.3g}; that step was not saved. Last good checkpoint: {self.checkpoint}. "
                    "Try a lower learning rate or a longer warm-up"
                )
            line |= {"loss": loss, "grad_norm": norm}
        return lines

    def _learn(self, step: int) -> tuple[Tensor, Tensor]:
        """One step: its loss, and the length of its gradient. On a GPU nothing here waits."""
        recipe, world = self.recipe, self.world
        torch.manual_seed(mixed("step", recipe.seed, step, world.data_rank))
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.rate(step)
        total = torch.zeros((), device=world.device)
        for part in range(recipe.accumulate):
            ids, targets = self._here(*self.batches(step * recipe.accumulate + part))
            with self._precision():
                loss = self.loss(ids, targets) / recipe.accumulate
            loss.backward()
            total += loss.detach()
        norm = world.clip(self.model.parameters(), recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return world.mean(total), norm.to(total.dtype)

    def _look(self, line: dict[str, Any], prompt: str) -> None:
        """What is due beside learning: the validation loss, and a sample."""
        if self._due(self.every.evaluate) and self.judged:
            line["val_loss"] = loss = self._evaluate()
            if loss < self.best.get("val_loss", math.inf):
                self.best = {"val_loss": loss, "step": self.step}
                self._write_model(BEST)
        speaks = isinstance(self.world, Alone) and self.model.tokenizer is not None
        if self._due(self.every.sample) and speaks:
            self.model.eval()
            line["sample"] = prompt + self.model.generate(
                prompt, SAMPLE, temperature=0.8, top_k=50, seed=self.recipe.seed
            )

    @torch.no_grad()
    def _evaluate(self) -> float:
        """The mean loss over the validation windows, always the same ones."""
        self.model.eval()
        T, ranks = self.recipe.context_length, self.world.data_ranks
        mine = self.judged[self.world.data_rank :: ranks] if len(self.judged) % ranks == 0 else self.judged
        total = torch.zeros((), device=self.world.device)
        for some in torch.tensor(mine).split(self.recipe.batch // ranks):
            rows = torch.stack([self.validation[at : at + T + 1] for at in some.tolist()]).to(torch.int64)
            with self._precision():
                total += self.model.loss(*self._here(rows[:, :-1], rows[:, 1:])) * (len(rows) / len(mine))
        return float(self.world.mean(total))

    def _windows(self, most: int) -> list[int]:
        """Where the validation windows begin: at most so many, evenly apart."""
        T = self.recipe.context_length
        there = max(0, (len(self.validation) - 1) // T)
        count = min(there, most)
        count -= count % self.world.data_ranks if count > self.world.data_ranks else 0
        return [number * there // count * T for number in range(count)]

    def _found(self) -> state.Checkpoint | None:
        """The checkpoint to go on from, if there is one; refused where it is of another run."""
        found: state.Checkpoint | None = self.world.share(state.latest(self.out) if self.world.main else None)
        other = state.differences(found.told, self.told) if found is not None else []
        if found is not None and other:
            done = self.out / MODEL
            on = f". To learn on from what it became: --model {done}, and another --out" if done.is_dir() else ""
            raise ValueError(
                f"{found.path} is of another run: {'; '.join(other)}. Tell it the same to go on, "
                f"choose another directory, or start anew (--fresh, resume=False){on}"
            )
        return found

    def _go_on(self) -> None:
        if self._resumed is not None:
            tensors = self._resumed.tensors() if self.world.main else {}
            self.world.load_full_state(self.model, self.optimizer, tensors)
            self.step, self.best, self.checkpoint = self._resumed.step, self._resumed.best, self._resumed.path.name

    def _save(self) -> None:
        """A checkpoint of this step."""
        whole = self._gathered()
        if self.world.main:
            self.checkpoint = state.save(self.out, self.step, whole, self.told, self.best, self.keep).name
        self.checkpoint = self.world.share(self.checkpoint)

    def _finish(self, bar: Progress) -> None:
        self.model.eval()
        if self.step:  # also where it was stopped: enough is enough
            self._write_model(MODEL)
        if self.world.main and not plot(state.read_log(self.out / LOG), self.out / PLOT):
            bar.say("no loss.png without matplotlib: pip install matplotlib")
        self.world.barrier()

    def _write_model(self, name: str) -> None:
        """The model as it is now, for GPT.from_pretrained."""
        weights = {key.removeprefix("model."): t for key, t in self._gathered().items() if key.startswith("model.")}
        if self.world.main:
            checkpoint.save(self.model, self.out / name, state=weights)

    def _gathered(self) -> dict[str, Tensor]:
        """Weights and optimizer state, whole; gathered once a step."""
        if self._whole is None:
            self._whole = self.world.full_state(self.model, self.optimizer)
        return self._whole

    def _due(self, every: int) -> bool:
        return every > 0 and (self.step % every == 0 or self.step == self.recipe.steps)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.world.device.type, torch.bfloat16, enabled=self.recipe.dtype == "bf16")

    def _here(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Tensors on the device; a GPU fetches them while it works."""
        if self.world.device.type != "cuda":
            return tuple(t.to(self.world.device) for t in tensors)
        return tuple(t.contiguous().pin_memory().to(self.world.device, non_blocking=True) for t in tensors)


def told(recipe: Recipe, model: GPT, tokens: Tokens) -> dict[str, Any]:
    """All that must be the same for a run to go on, as JSON would give it back."""
    words = None if model.tokenizer is None else hashlib.sha256(str(model.tokenizer).encode()).hexdigest()
    found = {
        **asdict(recipe),
        "config": asdict(model.config),
        "data": {"tokens": len(tokens.ids), "sha256": tokens.sha256},
        "tokenizer": words,
    }
    again: dict[str, Any] = json.loads(json.dumps(found))
    return again


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Has Ctrl-C been pressed, or a polite end been asked for? The second Ctrl-C stops at once."""
    asked = threading.Event()

    def note(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():  # signals are not ours to take
        yield asked.is_set
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
