"""A training step: ours against transformers' GPT-2, with the same weights, batch and optimizer.

    python -m regard.bench.train --quick
    python -m regard.bench.train --device cuda --model gpt2-small --batch 32 --tokens 1024

A step is forward, loss, backward, clipping, AdamW and zero_grad. Each contender's first loss, and the gradient that
comes out at the bottom, are held against ours; nothing is timed if they differ. On a GPU both models are compiled, and
measured as they are too.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.bench import options, timing
from regard.bench.peers import COMPILED, OURS
from regard.bench.report import (
    Panel,
    Progress,
    column,
    machine,
    machine_lines,
    plot,
    reason,
    say,
    table,
    wrap,
    write_json,
)
from regard.bench.tables import NOISY
from regard.bench.twins import QUICK, WrongError, twin, weights_in_use
from regard.gpt import GPT, GPTConfig
from regard.gpt.train.optimizer import adamw
from regard.gpt.train.options import Recipe

THEIRS = "transformers"
WARMUPS = 3  # steps: the first compiles, and gives AdamW its memory
# Relative: how far a contender's first loss, and its gradient, may be from ours.
TOLERANCE = {"fp32": (1e-5, 1e-3), "bf16": (1e-3, 0.1)}
# What tensor cores do at best in bf16, in FLOP/s, by the GPU's name.
PEAKS = {"H200": 989e12, "H100 80GB HBM3": 989e12}


@dataclasses.dataclass(frozen=True)
class Setting(options.Setting):
    """How long a row is, and whether steps are compiled, besides what holds for every benchmark.

    dtype: "fp32", or "bf16" by autocast, where weights stay in float32.
    compiled: also by torch.compile, which is what `fit` does on a GPU; then that is what counts as ours.
    """

    tokens: int = 1024
    compiled: bool = False

    @property
    def base(self) -> str:
        """Who the others are held against."""
        return OURS + COMPILED if self.compiled else OURS

    @property
    def names(self) -> list[str]:
        """All contenders, ours first."""
        return [who + how for how in ([COMPILED, ""] if self.compiled else [""]) for who in (OURS, THEIRS)]


class Learner:
    """A model that learns, one step at a time, as regard.gpt.train.loop does it.

    >>> setting = Setting("cpu", "fp32", tokens=5)
    >>> ids, targets = batch_of(QUICK, 2, setting)
    >>> learner = Learner(OURS, QUICK, setting, batch=2)
    >>> first, second = (learner.step(ids, targets) for _ in range(2))
    >>> bool(second < first)
    True
    """

    def __init__(self, name: str, config: GPTConfig, setting: Setting, batch: int) -> None:
        torch.manual_seed(setting.seed)
        with torch.device(setting.device):
            ours = GPT(config)
        if name.startswith(OURS):
            self.model: nn.Module = ours
            self.loss: Callable[[Tensor, Tensor], Tensor] = ours.loss
            self.bottom = ours.get_parameter("position_embedding.weight")
        else:
            self.model = twin(ours)
            self.loss = partial(loss_of_theirs, self.model)
            self.bottom = self.model.get_parameter("transformer.wpe.weight")
        self.model.train()
        if name.endswith(COMPILED):
            self.loss = torch.compile(self.loss, dynamic=False)
        # A low rate, so that every round meets nearly the same weights; the work is that of any rate.
        self.recipe = Recipe(steps=1, batch=batch, learning_rate=1e-5, dtype=setting.dtype)
        self.optimizer = adamw(self.model, self.recipe)
        self._precision = torch.autocast(
            torch.device(setting.device).type, torch.bfloat16, enabled=setting.dtype == "bf16"
        )

    def learn(self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """Forward and backward; the loss."""
        with self._precision:
            loss = self.loss(ids, targets)
        loss.backward()
        return loss.detach()

    def move(self) -> None:
        """Clip the gradient, follow it, forget it."""
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """What is timed."""
        loss = self.learn(ids, targets)
        self.move()
        return loss


def loss_of_theirs(model: Any, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """transformers' own loss. It would shift labels and lose a token a row; told the shifted ones, it learns from all."""
    loss: Tensor = model(ids, labels=targets, shift_labels=targets, use_cache=False).loss
    return loss


def batch_of(config: GPTConfig, batch: int, setting: Setting) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Random tokens, and the tokens that follow them."""
    generator = torch.Generator().manual_seed(setting.seed)
    rows = torch.randint(0, config.vocab_size, (batch, setting.tokens + 1), generator=generator).to(setting.device)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def flops(config: GPTConfig, batch: int, tokens: int) -> int:
    """What a step must calculate: 6 FLOPs a weight and token, and attention's two products, the causal half of them.

    >>> round(flops(GPTConfig.preset("gpt2-small"), batch=1, tokens=1024) / 1e12, 2)
    0.82
    """
    with torch.device("meta"):
        weights = sum(p.numel() for p in weights_in_use(GPT(config)))
    attention = 6 * config.num_layers * config.d_model * tokens  # a token; forward is a third of it
    return batch * tokens * (6 * weights + attention)


def peak_flops(gpu: str | None, dtype: str) -> float | None:
    """What the machine could calculate in a second, where that is known.

    >>> peak_flops("NVIDIA H200", "bf16")
    989000000000000.0
    """
    known = [peak for name, peak in PEAKS.items() if dtype == "bf16" and gpu is not None and name in gpu]
    return known[0] if known else None


def run(
    setting: Setting,
    models: Sequence[str] = ("gpt2-small",),
    batches: Sequence[int] = (2,),
    out_dir: str | Path = "bench-out",
    *,
    configs: dict[str, GPTConfig] | None = None,
    command: str = "",
    show: Callable[[str], None] = say,
) -> dict[str, Any]:
    """Check, then measure every model at every batch size, show the tables, and write train.json and train.png.

    configs: sizes that are no presets, by name. The file is written after every case.
    """
    where = Path(out_dir)
    if setting.cuda:
        torch.cuda.set_device(torch.device(setting.device).index or 0)
    about = machine(command)
    results: dict[str, Any] = {
        "benchmark": "train", "machine": about, "settings": dataclasses.asdict(setting),
        "peak_flop_s": peak_flops(about["gpu"] if setting.cuda else None, setting.dtype), "cases": [],
    }  # fmt: skip
    show("\n".join(machine_lines(about)))
    drawn: list[Panel] = []
    for name in models:
        config = (configs or {}).get(name) or GPTConfig.preset(name)
        for batch in batches:
            with Progress() as progress:
                case = _case(name, config, batch, setting, results["peak_flop_s"], progress)
            _clear(setting)
            results["cases"].append(case)
            write_json(where / "train.json", results)
            show("\n" + "\n".join(case_lines(case)))
            found = case["contenders"]
            bars = sorted((one["ms"], who) for who, one in found.items())
            drawn.append(Panel(case["label"], [(who, ms, who.startswith(OURS)) for ms, who in bars]))
    excuse = plot(where / "train.png", drawn, columns=1)
    show(f"\n  {where / 'train.json'}")
    show(f"  {excuse or where / 'train.png'}")
    return results


@dataclasses.dataclass(frozen=True)
class Ready:
    """A contender after its first steps, and what came of them."""

    step: timing.Call
    losses: list[float]
    gradient: Float[
        Tensor, "T E"
    ]  # of the position vectors, in the first step: it comes out at the bottom, after all else
    peak: int | None  # bytes of a step, with weights and all that the optimizer keeps; None on a CPU


def _prepare(who: str, config: GPTConfig, setting: Setting, ids: Tensor, targets: Tensor) -> Ready:
    """Build a contender and take its first steps."""
    before = _held(setting)
    learner = Learner(who, config, setting, len(ids))
    losses = [learner.learn(ids, targets).item()]
    assert learner.bottom.grad is not None
    gradient = learner.bottom.grad.double().cpu()
    learner.move()
    step = partial(learner.step, ids, targets)
    losses += [step().item() for _ in range(WARMUPS - 1)]
    kept = _held(setting) - before
    above = timing.peak_memory(step, setting.device)
    return Ready(step, losses, gradient, None if above is None else kept + above)


def _case(
    name: str, config: GPTConfig, batch: int, setting: Setting, peak: float | None, progress: Progress
) -> dict[str, Any]:
    """One model at one batch size."""
    label = f"{name}, B={batch} T={setting.tokens} · {setting.words}"
    work = flops(config, batch, setting.tokens)
    case: dict[str, Any] = {
        "model": name, "batch": batch, "tokens": setting.tokens, "label": label, "base": setting.base,
        "flops_a_step": work, "contenders": {}, "notes": [],
    }  # fmt: skip
    ids, targets = batch_of(config, batch, setting)
    ready: dict[str, Ready] = {}
    for who in setting.names:
        progress.stage(f"{label}: first steps of {who}")
        try:
            ready[who] = _prepare(who, config, setting, ids, targets)
        except Exception as error:  # whatever ails a peer must not end the run
            if who == setting.base:
                raise
            excuse = f"not installed ({error})" if isinstance(error, ImportError) else f"failed: {reason(error)}"
            case["notes"].append(f"{who}: {excuse}")
            continue
        one = ready[who]
        loss_away, gradient_away = check(name, who, one, ready[setting.base], setting.dtype)
        case["contenders"][who] = {
            "losses": one.losses, "loss_away": loss_away, "gradient_away": gradient_away,
            "peak_mib": None if one.peak is None else one.peak / 2**20,
        }  # fmt: skip
    progress.stage(f"{label}: timing")
    times = timing.interleave(
        {who: one.step for who, one in ready.items()}, timing.eager if setting.cuda else timing.wall,
        rounds=setting.rounds, seconds=setting.seconds, at_least=1.0 if setting.cuda else 0.0, seed=setting.seed,
        tick=progress.tick,
    )  # fmt: skip
    times = {who: dataclasses.replace(t, by_median=setting.cuda) for who, t in times.items()}
    for who, ratio in timing.ratios(times, setting.base).items():
        t = times[who]
        case["contenders"][who] |= {
            "tokens_s": batch * setting.tokens / t.counts, "ms": t.counts * 1e3, "to_ours": ratio.to_ours,
            "flop_s": work / t.counts, "of_peak": None if peak is None else work / t.counts / peak,
            "best_ms": t.best * 1e3, "median_ms": t.median * 1e3, "rounds": t.rounds, "calls": t.calls,
        }  # fmt: skip
        if t.median >= NOISY * t.best:
            case["notes"].append(f"noisy: {who}: the median is {t.median / t.best:.1f} × the best")
    return case


def check(name: str, who: str, found: Ready, ours: Ready, dtype: str) -> tuple[float, float]:
    """How far a contender's first loss and gradient are from ours, relatively; WrongError where it is too far.

    Random tokens surprise every untrained model by the same amount, so a loss alone would say little.
    """
    away = (
        abs(found.losses[0] - ours.losses[0]) / abs(ours.losses[0]),
        float((found.gradient - ours.gradient).norm() / ours.gradient.norm()),
    )
    for what, far, limit in zip(("loss", "gradient"), away, TOLERANCE[dtype], strict=True):
        if not far <= limit:  # NaN is refused too
            raise WrongError(
                f"{name}: the {what} of {who} is {far:.2g} away from ours, and {limit:g} is allowed in {dtype}; "
                "nothing was timed"
            )
    return away


def _held(setting: Setting) -> int:
    """Bytes in use on the GPU."""
    if not setting.cuda:
        return 0
    gc.collect()
    return torch.cuda.memory_allocated()


def _clear(setting: Setting) -> None:
    """Room for the next case."""
    gc.collect()
    if setting.compiled:
        torch.compiler.reset()
    if setting.cuda:
        torch.cuda.empty_cache()


def case_lines(case: dict[str, Any]) -> list[str]:
    """The table of one case, at most 80 columns wide, fastest first."""
    found = case["contenders"]
    names = sorted(found, key=lambda who: found[who]["ms"])
    columns = [
        names,
        column([found[who]["tokens_s"] for who in names]),
        column([found[who]["ms"] for who in names]),
        [f"{found[who]['to_ours']:.2f}" for who in names],
        ["-" if (share := found[who]["of_peak"]) is None else f"{share:.0%}" for who in names],
        ["-" if (size := found[who]["peak_mib"]) is None else f"{size:,.0f}" for who in names],
    ]
    head = ["who", "tokens/s", "ms a step", "time ÷ ours", "of peak", "MiB"]
    lines = [f"  {case['label']}", ""]
    lines += table(head, list(zip(*columns, strict=True)), marked=names.index(case["base"]))
    away = [one[what] for one in found.values() for what in ("loss_away", "gradient_away")]
    checked = f"; all losses and gradients within {max(away):.1g} of ours" if len(found) > 1 else ""
    for note in [f"a step is {case['flops_a_step'] / 1e12:.3g} TFLOP{checked}", *case["notes"]]:
        lines += wrap(note)
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = options.parser(
        "train", "Time a training step, ours against transformers.", rounds=5, seconds=60.0,
        quick="a very small model, a few seconds",
    )  # fmt: skip
    parser.add_argument("--model", action="append", help="a preset; may be repeated (default: gpt2-small)")
    parser.add_argument("--batch", action="append", type=int, help="may be repeated (default: 32 on a GPU, else 2)")
    parser.add_argument("--tokens", type=int, help="a row (default: 1024 on a GPU, else 256)")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], help="default: bf16 on a GPU, fp32 on a CPU")
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="default: on a GPU; on a CPU set OMP_WAIT_POLICY=passive",
    )
    told = parser.parse_args(argv)
    with options.refusing(parser):
        cuda = options.on_cuda(told.device)
        options.check_above_0(told, "tokens", "batch")
        usual = 32 if told.quick else 1024 if cuda else 256
        tokens = usual if told.tokens is None else told.tokens
        batches = told.batch or [32 if cuda and not told.quick else 2]
        configs = {"quick": QUICK} if told.quick else {n: GPTConfig.preset(n) for n in told.model or ["gpt2-small"]}
        for name, config in configs.items():
            if tokens > config.context_length:
                raise ValueError(f"--tokens {tokens} do not fit {name}'s context of {config.context_length}")
    if told.threads:
        torch.set_num_threads(told.threads)
    setting = Setting(
        told.device, told.dtype or ("bf16" if cuda else "fp32"), **options.patience(told, 3, 0.2), tokens=tokens,
        compiled=cuda if told.compile is None else told.compile,
    )  # fmt: skip
    try:
        run(
            setting, list(configs), batches, told.out, configs=configs,
            command=shlex.join(["python", "-m", "regard.bench.train", *argv]),
        )  # fmt: skip
    except WrongError as error:
        parser.exit(1, f"{error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
