"""One attention layer next to other libraries' layers: forward, and forward + backward, for several shapes and dtypes.

    python -m regard.bench.layer --quick
    python -m regard.bench.layer --device cuda --compiled

On a GPU there are two clocks: device, by replay of a CUDA graph, and eager, the wall-clock time including Python.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.bench import timing
from regard.bench.clocks import time_by_all_clocks
from regard.bench.layer_tables import panels, summary, summary_lines, tables
from regard.bench.options import LAYERS, MODES, check_positive
from regard.bench.peers import (
    COMPILED,
    CONTENDERS,
    OURS,
    LayerQuestion,
    Shape,
    Weights,
    ask,
    distance,
    memory_needed,
    refusal,
)
from regard.bench.plot import Panel, plot
from regard.bench.progress import StageProgress
from regard.bench.report import reason, say, write_json
from regard.bench.settings import Setting, find_device, find_dtype, limits, run_command, start
from regard.bench.timing import Timed
from regard.support.arguments import near_divisors

_SMALL, _XL = "GPT-2 small", "GPT-2 XL"
ON_CPU = (Shape(768, 12, 2, 1024, _SMALL), Shape(768, 12, 8, 128, _SMALL), Shape(768, 12, 1, 4096, _SMALL))
ON_CUDA = (
    Shape(768, 12, 16, 1024, _SMALL),
    Shape(1600, 25, 8, 1024, _XL),
    Shape(4096, 32, 2, 4096),
    Shape(768, 12, 1, 16384, _SMALL),
)
QUICK = (Shape(256, 4, 2, 256),)


def run(
    shapes: Sequence[Shape],
    dtypes: Sequence[torch.dtype],
    device: str = "cpu",
    compiled: Sequence[str] = (),
    rounds: int = 20,
    out_dir: str | Path = "bench-out",
    *,
    seconds: float = 3.0,
    only: Sequence[str] = tuple(CONTENDERS),
    modes: Sequence[str] = MODES,
    seed: int = 0,
    command: str = "",
    show: Callable[[str], None] = say,
) -> dict[str, Any]:
    """Measure every shape in every dtype, show the tables, and write layer.json and layer.png into out_dir.

    compiled: the contenders that are also timed with torch.compile. seconds: the time that a contender may take for one
    figure; slow ones get fewer rounds, at least 2. The file is written after every shape, so that an interrupted run
    keeps its results.
    """
    where = Path(out_dir)
    settings = {"device": device, "rounds": rounds, "seconds": seconds, "seed": seed, "compiled": list(compiled)}
    results = start("layer", command, device, settings, show) | {"cases": [], "summary": []}
    names = [name for name in CONTENDERS if name in only]
    names += [name + COMPILED for name in names if name in compiled]
    drawn: list[Panel] = []
    for shape in shapes:
        for dtype in dtypes:
            if compiled:
                torch.compiler.reset()
            with StageProgress() as progress:
                case = _case(shape, Setting(device, dtype, rounds, seconds, seed), names, modes, progress)
            results["cases"].append(case)
            results["summary"] = summary(results["cases"])
            drawn += panels(case)
            write_json(where / "layer.json", results)
            show("\n" + "\n".join(tables(case)))
    show("\n" + "\n".join(summary_lines(results["summary"])))
    no_plot = plot(where / "layer.png", drawn, columns=len(modes))
    show(f"\n  {where / 'layer.json'}")
    show(f"  {no_plot or where / 'layer.png'}")
    return results


def _case(
    shape: Shape, setting: Setting, names: Sequence[str], modes: Sequence[str], progress: StageProgress
) -> dict[str, Any]:
    """One shape in one dtype: build, check, time."""
    dtype = setting.as_json()["dtype"]
    label = f"{shape}, {dtype}"
    progress.stage(f"{label}: expected results in float64")
    weights = Weights.random(shape.width, setting.dtype, setting.seed)
    question = ask(shape, weights, setting.dtype, setting.device, setting.seed + 1)
    layers: dict[str, nn.Module] = {}
    case: dict[str, Any] = {
        "shape": dataclasses.asdict(shape),
        "label": str(shape),
        "dtype": dtype,
        "device": setting.device,
        "contenders": {},
        "notes": [],
    }
    progress.stage(f"{label}: checking {len(names)} contenders")
    for done, name in enumerate(names):
        progress.tick(done, len(names))
        try:
            layer, away = _build(name, shape, weights, question, setting)
        except _NotTimedError as why:
            case["notes"].append(f"{name}: {why}")
            continue
        layers[name] = layer
        case["contenders"][name] = {"distance": away, "peak_mib": {}, "times": {}}
    for mode in modes:
        calls = {name: _call(layer, question, mode) for name, layer in layers.items()}
        _measure(calls, mode, setting, case, label, progress)
    return case


class _NotTimedError(Exception):
    """Why a contender is not timed."""


def _build(
    name: str, shape: Shape, weights: Weights, question: LayerQuestion, setting: Setting
) -> tuple[nn.Module, dict[str, float]]:
    """A contender that has been checked, and its distance from float64; _NotTimedError where it cannot be timed."""
    free, need = timing.free_memory(setting.device), memory_needed(name, shape, setting.dtype)
    if free is not None and need > 0.9 * free:
        raise _NotTimedError(f"not tried: it needs about {need / 2**30:.0f} GiB and {free / 2**30:.0f} GiB are free")
    try:
        layer = CONTENDERS[name.removesuffix(COMPILED)](shape, weights).to(setting.device, setting.dtype)
        if name.endswith(COMPILED):
            layer.compile(fullgraph=True)
        away = distance(layer, question)
    except ImportError as error:
        raise _NotTimedError(f"not installed ({error})") from error
    except Exception as error:  # a contender that fails must not end the run
        raise _NotTimedError(f"failed: {reason(error)}") from error
    if (why := refusal(away, setting.dtype)) is not None:
        raise _NotTimedError(why)
    return layer, dataclasses.asdict(away)


def _measure(
    calls: dict[str, Timed], mode: str, setting: Setting, case: dict[str, Any], label: str, progress: StageProgress
) -> None:
    """Time all contenders in one mode by every clock of the device, into the case."""
    contenders = case["contenders"]
    if setting.cuda:
        for name, call in calls.items():
            peak = timing.peak_memory(call, setting.device)
            contenders[name]["peak_mib"][mode] = None if peak is None else peak / 2**20
    timings, failures = time_by_all_clocks(calls, setting, f"{label}: {mode}", progress)
    case["notes"] += [f"{name}: no device time for {mode}: {why}" for name, why in failures.items()]
    for clock, by_name in timings.items():
        for name, ratio in timing.ratios(by_name, OURS).items():
            times = by_name[name].as_json() | dataclasses.asdict(ratio)
            contenders[name]["times"].setdefault(clock, {})[mode] = times


def _call(layer: nn.Module, question: LayerQuestion, mode: str) -> Timed:
    """What is timed: forward without gradients, or forward and the gradients of x and all parameters."""
    if mode == "forward":

        def forward() -> object:
            with torch.no_grad():
                return layer(question.x)

        return forward
    x = question.x.detach().requires_grad_()
    leaves = [x, *layer.parameters()]
    grad = torch.randn_like(question.x)

    def step() -> object:
        return torch.autograd.grad(layer(x), leaves, grad)

    return step


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run the benchmark."""
    return run_command("layer", argv, _prepare)


def _prepare(options: argparse.Namespace) -> Callable[..., object]:
    """Check the options; the run that they describe."""
    shapes = [_shape(s) for s in options.shape or ()]
    only = _names(options.only) if options.only else LAYERS
    compiled = _names(options.compiled) if options.compiled else []
    device, cuda = find_device(options.device)
    check_positive(options)
    dtypes = options.dtype or ([None] if cuda or options.quick else ["fp32", "bf16"])
    return partial(
        run,
        shapes or (QUICK if options.quick else ON_CUDA if cuda else ON_CPU),
        [find_dtype(dtype, cuda) for dtype in dtypes],
        device,
        compiled,
        out_dir=options.out,
        only=only,
        modes=[mode for mode in MODES if not options.mode or mode in options.mode],
        **limits(options, 5, 0.3),
    )


def _shape(text: str) -> Shape:
    try:
        width, heads, batch, tokens = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--shape {text} must be four whole numbers E,H,B,T, such as 768,12,2,1024") from None
    if min(width, heads, batch, tokens) < 1:
        raise ValueError(f"--shape {text}: every size must be at least 1, such as 768,12,2,1024")
    if width % heads:
        near = near_divisors(width, heads)
        raise ValueError(f"--shape {text}: width {width} is not divisible by {heads} heads; try {near} heads")
    known = next((s.name for s in (*ON_CPU, *ON_CUDA) if (s.width, s.heads) == (width, heads)), "")
    return Shape(width, heads, batch, tokens, known)


def _names(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",")]
    unknown = [name for name in names if name not in CONTENDERS]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such contender; choose from {', '.join(CONTENDERS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
