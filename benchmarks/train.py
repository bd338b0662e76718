"""A training step: ours against transformers' GPT-2, with the same weights, batch and optimizer.

    python -m benchmarks train --device cuda --model gpt2-small --batch 32 --tokens 1024

A step is forward, loss, backward, gradient clipping, AdamW and zero_grad. Each contender's first loss, and the gradient
of its position embedding, are compared with ours; if they differ, nothing is timed. On a GPU both models are timed with
and without torch.compile.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from benchmarks import harness, timing
from benchmarks.harness import Setting, WrongError, same_digits
from benchmarks.peers import COMPILED, OURS
from benchmarks.twins import QUICK, twin, weights_in_use
from regard.gpt import GPT, GPTConfig
from regard.gpt.train.loop import adamw
from regard.gpt.train.options import Recipe

THEIRS = "transformers"
WARMUPS = 3  # steps: the first compiles, and allocates the state of AdamW
# Relative distance that a contender's first loss, and its gradient, may have from ours.
TOLERANCE = {"fp32": (1e-5, 1e-3), "bf16": (1e-3, 0.1)}
# Peak FLOP/s of the tensor cores in bf16, by the GPU's name.
PEAKS = {"H200": 989e12, "H100 80GB HBM3": 989e12}


@dataclasses.dataclass(frozen=True)
class TrainSetting(Setting):
    """The settings of every benchmark, and how long a row is and whether steps are compiled.

    dtype: "fp32", or "bf16" for autocast, with weights in float32.
    compiled: time torch.compile too, which `fit` uses on a GPU; then others are compared with our compiled step.
    """

    tokens: int = 1024
    compiled: bool = False

    @property
    def base(self) -> str:
        """The contender that the others are compared with."""
        return OURS + COMPILED if self.compiled else OURS

    @property
    def names(self) -> list[str]:
        """All contenders, ours first."""
        return [who + how for how in ([COMPILED, ""] if self.compiled else [""]) for who in (OURS, THEIRS)]


class Learner:
    """A model with its optimizer, trained as regard.gpt.train.loop does it.

    >>> setting = TrainSetting("cpu", "fp32", tokens=5)
    >>> ids, targets = batch_of(QUICK, 2, setting)
    >>> learner = Learner(OURS, QUICK, setting, batch=2)
    >>> first, second = (learner.step(ids, targets) for _ in range(2))
    >>> bool(second < first)
    True
    """

    def __init__(self, name: str, config: GPTConfig, setting: TrainSetting, batch: int) -> None:
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
        # A low learning rate, so that the weights are nearly the same in every round.
        self.recipe = Recipe(steps=1, batch=batch, learning_rate=1e-5, dtype=setting.dtype)
        self.optimizer = adamw(self.model, self.recipe)
        self._precision = torch.autocast(
            torch.device(setting.device).type, torch.bfloat16, enabled=setting.dtype == "bf16"
        )

    def backward(self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """Forward and backward. Returns the loss."""
        with self._precision:
            loss = self.loss(ids, targets)
        loss.backward()
        return loss.detach()

    def update(self) -> None:
        """Clip the gradient, update the weights, zero the gradient."""
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """One training step: what is timed."""
        loss = self.backward(ids, targets)
        self.update()
        return loss


def loss_of_theirs(model: Any, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """transformers' own loss over all tokens. It shifts `labels`, losing a token per row, but not `shift_labels`."""
    loss: Tensor = model(ids, labels=targets, shift_labels=targets, use_cache=False).loss
    return loss


def batch_of(config: GPTConfig, batch: int, setting: TrainSetting) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Random token ids and their targets, the next tokens."""
    generator = torch.Generator().manual_seed(setting.seed)
    rows = torch.randint(0, config.vocab_size, (batch, setting.tokens + 1), generator=generator).to(setting.device)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def flops(config: GPTConfig, batch: int, tokens: int) -> int:
    """FLOPs of a step: 6 per weight and token, and the causal half of the two products of attention.

    >>> round(flops(GPTConfig.preset("gpt2-small"), batch=1, tokens=1024) / 1e12, 2)
    0.82
    """
    with torch.device("meta"):
        weights = sum(p.numel() for p in weights_in_use(GPT(config)))
    attention = 6 * config.num_layers * config.d_model * tokens  # per token; forward is a third of it
    return batch * tokens * (6 * weights + attention)


def peak_flops(gpu: str | None, dtype: str) -> float | None:
    """Peak FLOP/s of the GPU, where it is known.

    >>> peak_flops("NVIDIA H200", "bf16")
    989000000000000.0
    """
    known = [peak for name, peak in PEAKS.items() if dtype == "bf16" and gpu is not None and name in gpu]
    return known[0] if known else None


def run(
    setting: TrainSetting,
    configs: dict[str, GPTConfig],
    batches: Sequence[int] = (2,),
    out_dir: str | Path = "bench-out",
    command: str = "",
) -> dict[str, Any]:
    """Check, then measure every model at every batch size, show the tables, and write train.json after every case."""
    where = Path(out_dir) / "train.json"
    results = harness.start("train", command, setting.device, setting.as_json())
    gpu = results["machine"]["gpu"] if setting.cuda else None
    results |= {"peak_flop_s": peak_flops(gpu, setting.dtype), "cases": []}
    for name, config in configs.items():
        for batch in batches:
            case = _case(name, config, batch, setting, results["peak_flop_s"])
            _clear(setting)
            results["cases"].append(case)
            harness.write_json(where, results)
            harness.say("\n" + "\n".join(case_lines(case)))
    harness.say(f"\n  {where}")
    return results


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A contender after its first steps, and their results.

    gradient: of the position embedding in the first step; it depends on every gradient above it.
    peak: bytes of a step, including weights and optimizer state; None on a CPU.
    """

    step: timing.Timed
    losses: list[float]
    gradient: Float[Tensor, "T E"]
    peak: int | None


def _prepare(who: str, config: GPTConfig, setting: TrainSetting, ids: Tensor, targets: Tensor) -> Prepared:
    """Build a contender and take its first steps."""
    before = _allocated(setting)
    learner = Learner(who, config, setting, len(ids))
    losses = [learner.backward(ids, targets).item()]
    assert learner.bottom.grad is not None
    gradient = learner.bottom.grad.double().cpu()
    learner.update()
    step = partial(learner.step, ids, targets)
    losses += [step().item() for _ in range(WARMUPS - 1)]
    kept = _allocated(setting) - before
    above = timing.peak_memory(step, setting.device)
    return Prepared(step, losses, gradient, None if above is None else kept + above)


def _case(name: str, config: GPTConfig, batch: int, setting: TrainSetting, peak: float | None) -> dict[str, Any]:
    """One model at one batch size."""
    label = f"{name}, B={batch} T={setting.tokens} · {setting.label}"
    work = flops(config, batch, setting.tokens)
    case: dict[str, Any] = {
        "model": name,
        "batch": batch,
        "tokens": setting.tokens,
        "label": label,
        "base": setting.base,
        "flops_a_step": work,
        "contenders": {},
        "notes": [],
    }
    ids, targets = batch_of(config, batch, setting)
    ready: dict[str, Prepared] = {}
    for who in setting.names:
        harness.stage(f"{label}: first steps of {who}")
        try:
            ready[who] = _prepare(who, config, setting, ids, targets)
        except Exception as error:  # a contender that fails must not end the run
            if who == setting.base:
                raise
            why = f"not installed ({error})" if isinstance(error, ImportError) else f"failed: {harness.reason(error)}"
            case["notes"].append(f"{who}: {why}")
            continue
        one = ready[who]
        loss_away, gradient_away = check(name, who, one, ready[setting.base], setting.dtype)
        case["contenders"][who] = {
            "losses": one.losses,
            "loss_away": loss_away,
            "gradient_away": gradient_away,
            "peak_mib": None if one.peak is None else one.peak / 2**20,
        }
    harness.stage(f"{label}: timing")
    steps = {who: one.step for who, one in ready.items()}
    times = timing.measure(steps, setting, at_least=1.0 if setting.cuda else 0.0)
    for who, ratio in timing.ratios(times, setting.base).items():
        t = times[who]
        case["contenders"][who] |= t.as_json() | {
            "tokens_s": batch * setting.tokens / t.counts,
            "to_ours": ratio,
            "flop_s": work / t.counts,
            "of_peak": None if peak is None else work / t.counts / peak,
        }
        if t.is_noisy:
            case["notes"].append(f"noisy: {who}: {t.noise}")
    return case


def check(name: str, who: str, theirs: Prepared, ours: Prepared, dtype: str) -> tuple[float, float]:
    """Relative distance of a contender's first loss and gradient from ours; WrongError where it is too far.

    On random tokens every untrained model has the same loss, so the loss alone would prove little.
    """
    away = (
        abs(theirs.losses[0] - ours.losses[0]) / abs(ours.losses[0]),
        float((theirs.gradient - ours.gradient).norm() / ours.gradient.norm()),
    )
    for what, far, limit in zip(("loss", "gradient"), away, TOLERANCE[dtype], strict=True):
        if not far <= limit:  # NaN is refused too
            raise WrongError(
                f"{name}: the {what} of {who} is {far:.2g} away from ours, and {limit:g} is allowed in {dtype}; "
                "nothing was timed"
            )
    return away


def _allocated(setting: TrainSetting) -> int:
    """Bytes allocated on the GPU."""
    if not setting.cuda:
        return 0
    gc.collect()
    return torch.cuda.memory_allocated()


def _clear(setting: TrainSetting) -> None:
    """Free the memory for the next case."""
    gc.collect()
    if setting.compiled:
        torch.compiler.reset()
    if setting.cuda:
        torch.cuda.empty_cache()


def case_lines(case: dict[str, Any]) -> list[str]:
    """The table of one case, at most 80 columns wide, fastest first."""
    results = case["contenders"]
    names = sorted(results, key=lambda who: results[who]["ms"])
    columns = [
        names,
        same_digits([results[who]["tokens_s"] for who in names]),
        same_digits([results[who]["ms"] for who in names]),
        [f"{results[who]['to_ours']:.2f}" for who in names],
        ["-" if (share := results[who]["of_peak"]) is None else f"{share:.0%}" for who in names],
        ["-" if (size := results[who]["peak_mib"]) is None else f"{size:,.0f}" for who in names],
    ]
    head = ["who", "tokens/s", "ms a step", "time ÷ ours", "of peak", "MiB"]
    lines = [f"  {case['label']}", "", *harness.table_lines(head, columns, marked=names.index(case["base"]))]
    away = [one[what] for one in results.values() for what in ("loss_away", "gradient_away")]
    checked = f"; all losses and gradients within {max(away):.1g} of ours" if len(results) > 1 else ""
    for note in [f"a step is {case['flops_a_step'] / 1e12:.3g} TFLOP{checked}", *case["notes"]]:
        lines += harness.wrap(note)
    return lines


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    return harness.run_command("train", argv, _add_options, _prepare_run)


def _add_options(parser: argparse.ArgumentParser) -> None:
    harness.timing_options(parser, rounds=5, seconds=60.0, quick="a very small model")
    harness.model_option(parser)
    parser.add_argument("--batch", action="append", type=int, help="batch size [default: 32 on a GPU, else 2]")
    parser.add_argument("--tokens", type=int, help="tokens per row [default: 1024 on a GPU, else 256]")
    harness.dtype_option(parser, "bf16", "fp32")
    compiling = "use torch.compile; on a CPU, set OMP_WAIT_POLICY=passive [default: on a GPU]"
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help=compiling)


def _prepare_run(options: argparse.Namespace) -> Callable[..., object]:
    """Check the options; the run that they describe."""
    device, cuda = harness.find_device(options.device)
    harness.check_positive(options, "tokens", "batch")
    default = 32 if options.quick else 1024 if cuda else 256
    tokens = default if options.tokens is None else options.tokens
    batches = options.batch or [32 if cuda and not options.quick else 2]
    configs = harness.choose_models(options, QUICK)
    for name, config in configs.items():
        if tokens > config.context_length:
            raise ValueError(f"--tokens {tokens} do not fit {name}'s context of {config.context_length}")
    setting = TrainSetting(
        device,
        options.dtype or ("bf16" if cuda else "fp32"),
        **harness.limits(options, 3, 0.2),
        tokens=tokens,
        compiled=cuda if options.compile is None else options.compile,
    )
    return partial(run, setting, configs, batches, options.out)
