"""One attention layer beside its peers: forward, and forward + backward, for several shapes and dtypes.

    python -m regard.bench.layer --quick
    python -m regard.bench.layer --device cuda --compiled

On a GPU there are two clocks: the device's own, by replay of a CUDA graph, and the wall's, Python included.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.bench import options, timing
from regard.bench.options import DTYPES
from regard.bench.peers import (
    COMPILED,
    CONTENDERS,
    OURS,
    Question,
    Shape,
    Weights,
    ask,
    distance,
    memory_needed,
    refusal,
)
from regard.bench.report import Panel, Progress, machine, machine_lines, plot, reason, say, write_json
from regard.bench.tables import MODES, panels, summary, summary_lines, tables
from regard.bench.timing import Call, Clock

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

    compiled: which contenders run through torch.compile as well. seconds: the time that a contender may take for
    one figure; slow ones get fewer rounds, never under 2. The file is written after every shape, so that a run that
    is cut short keeps what it has.
    """
    where = Path(out_dir)
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(torch.device(device).index or 0)  # streams, events and memory are of the current one
    results: dict[str, Any] = {
        "benchmark": "layer",
        "machine": machine(command),
        "settings": {"device": device, "rounds": rounds, "seconds": seconds, "seed": seed, "compiled": list(compiled)},
        "cases": [],
        "summary": [],
    }
    show("\n".join(machine_lines(results["machine"])))
    drawn: list[Panel] = []
    for shape in shapes:
        for dtype in dtypes:
            with Progress() as progress:
                case = _case(shape, dtype, device, only, compiled, modes, rounds, seconds, seed, progress)
            results["cases"].append(case)
            results["summary"] = summary(results["cases"])
            drawn += panels(case)
            write_json(where / "layer.json", results)
            show("\n" + "\n".join(tables(case)))
    show("\n" + "\n".join(summary_lines(results["summary"])))
    excuse = plot(where / "layer.png", drawn, columns=len(modes))
    show(f"\n  {where / 'layer.json'}")
    show(f"  {excuse or where / 'layer.png'}")
    return results


def _case(
    shape: Shape, dtype: torch.dtype, device: str, only: Sequence[str], compiled: Sequence[str], modes: Sequence[str],
    rounds: int, seconds: float, seed: int, progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    """One shape in one dtype: build, check, time."""
    label = f"{shape}, {_name(dtype)}"
    progress.stage(f"{label}: the answers in float64")
    weights = Weights.random(shape.width, dtype, seed)
    question = ask(shape, weights, dtype, device, seed + 1)
    names = [n for n in CONTENDERS if n in only]
    names += [n + COMPILED for n in names if n in compiled]
    if compiled:
        torch.compiler.reset()
    layers: dict[str, nn.Module] = {}
    contenders: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    progress.stage(f"{label}: checking {len(names)} contenders")
    for done, name in enumerate(names):
        progress.tick(done, len(names))
        room = timing.free_memory(device)
        need = memory_needed(name, shape, dtype)
        if room is not None and need > 0.9 * room:
            notes.append(
                f"{name}: not tried: it needs about {need / 2**30:.0f} GiB and {room / 2**30:.0f} GiB are free"
            )
            continue
        try:
            layer = CONTENDERS[name.removesuffix(COMPILED)](shape, weights).to(device, dtype)
            if name.endswith(COMPILED):
                layer.compile(fullgraph=True)
            found = distance(layer, question)
        except ImportError as error:
            notes.append(f"{name}: not installed ({error})")
            continue
        except Exception as error:  # whatever ails a peer must not end the run
            notes.append(f"{name}: failed: {reason(error)}")
            continue
        excuse = refusal(found, dtype)
        if excuse is not None:
            notes.append(f"{name}: {excuse}")
            continue
        layers[name] = layer
        contenders[name] = {"distance": dataclasses.asdict(found), "peak_mib": {}, "times": {}}
    for mode in modes:
        calls = {name: _call(layer, question, mode) for name, layer in layers.items()}
        _measure(calls, mode, device, contenders, notes, rounds, seconds, seed, label, progress)
    return {
        "shape": dataclasses.asdict(shape),
        "label": str(shape),
        "dtype": _name(dtype),
        "device": device,
        "contenders": contenders,
        "notes": notes,
    }


def _measure(
    calls: dict[str, Call], mode: str, device: str, contenders: dict[str, dict[str, Any]], notes: list[str],
    rounds: int, seconds: float, seed: int, label: str, progress: Progress,
) -> None:  # fmt: skip
    """All contenders in one mode by every clock of the device, into `contenders` and `notes`."""

    def time_all(clock: Clock, clock_name: str, timed: dict[str, Call], at_least: float) -> None:
        progress.stage(f"{label}: {mode}, {clock_name} clock")
        found = timing.interleave(
            timed, clock, rounds=rounds, seconds=seconds, at_least=at_least, seed=seed, tick=progress.tick
        )
        if clock_name != "wall":
            found = {name: dataclasses.replace(t, by_median=True) for name, t in found.items()}
        for name, ratio in timing.ratios(found, OURS).items():
            t = found[name]
            contenders[name]["times"].setdefault(clock_name, {})[mode] = {
                "ms": t.counts * 1e3,
                "best_ms": t.best * 1e3,
                "median_ms": t.median * 1e3,
                "rounds": t.rounds,
                "calls": t.calls,
                "to_fastest": ratio.to_fastest,
                "to_ours": ratio.to_ours,
            }

    if torch.device(device).type != "cuda":
        time_all(timing.wall, "wall", calls, at_least=0.05)
        return
    for name, call in calls.items():
        peak = timing.peak_memory(call, device)
        contenders[name]["peak_mib"][mode] = None if peak is None else peak / 2**20
    time_all(timing.eager, "eager", calls, at_least=0.02)
    progress.stage(f"{label}: {mode}, capturing graphs")
    graphs: dict[str, Call] = {}
    for name, call in calls.items():
        try:
            graphs[name] = timing.capture(call)
        except Exception as error:  # a graph that cannot be captured is a fact about the contender
            notes.append(f"{name}: no device time for {mode}: {reason(error)}")
    time_all(timing.device, "device", graphs, at_least=0.02)
    graphs.clear()
    torch.cuda.empty_cache()


def _call(layer: nn.Module, question: Question, mode: str) -> Call:
    """What is timed: forward without gradients, or forward and the gradients of x and of every parameter."""
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


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    argv = sys.argv[1:] if argv is None else list(argv)
    names = list(CONTENDERS)
    parser = options.parser(
        "layer", "Time one attention layer beside its peers.", rounds=20, seconds=3.0,
        quick="one small shape, float32, a few seconds",
    )  # fmt: skip
    parser.add_argument(
        "--shape", action="append", metavar="E,H,B,T", help="width, heads, batch, tokens; may be repeated"
    )
    parser.add_argument("--dtype", action="append", choices=sorted(DTYPES), help="may be repeated")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: both")
    parser.add_argument("--only", metavar="NAMES", help=f"comma-separated contenders of: {', '.join(names)}")
    parser.add_argument(
        "--compiled", nargs="?", const=",".join(names), default="", metavar="NAMES",
        help="also through torch.compile: these, or all that compile",
    )  # fmt: skip
    told = parser.parse_args(argv)
    with options.refusing(parser):
        shapes = [_shape(s) for s in told.shape or ()]
        only = _names(told.only) if told.only else names
        compiled = _names(told.compiled) if told.compiled else []
        cuda = options.on_cuda(told.device)
        options.check_above_0(told)
    if told.threads:
        torch.set_num_threads(told.threads)
    dtypes = [DTYPES[d] for d in told.dtype or (["bf16"] if cuda else ["fp32"] if told.quick else ["fp32", "bf16"])]
    shapes = shapes or list(QUICK if told.quick else ON_CUDA if cuda else ON_CPU)
    run(
        shapes, dtypes, told.device, compiled, out_dir=told.out, only=only, **options.patience(told, 5, 0.3),
        modes=[m for m in MODES if not told.mode or m in told.mode],
        command=shlex.join(["python", "-m", "regard.bench.layer", *argv]),
    )  # fmt: skip
    return 0


def _shape(text: str) -> Shape:
    try:
        width, heads, batch, tokens = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--shape {text} must be four whole numbers E,H,B,T, such as 768,12,2,1024") from None
    known = next((s.name for s in (*ON_CPU, *ON_CUDA) if (s.width, s.heads) == (width, heads)), "")
    return Shape(width, heads, batch, tokens, known)


def _names(text: str) -> list[str]:
    found = [part.strip() for part in text.split(",")]
    unknown = [name for name in found if name not in CONTENDERS]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such contender; choose from {', '.join(CONTENDERS)}")
    return found


if __name__ == "__main__":
    sys.exit(main())
