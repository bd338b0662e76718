"""One attention layer next to other libraries' layers: forward, and forward + backward, for several shapes and dtypes.

    python -m benchmarks layer --quick
    python -m benchmarks layer --device cuda --compiled

On a GPU there are two clocks: device, by replay of a CUDA graph, and eager, the wall-clock time including Python.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks import harness, timing
from benchmarks.harness import Setting, same_digits
from benchmarks.peers import (
    COMPILED,
    CONTENDERS,
    OURS,
    TEXTBOOK,
    LayerQuestion,
    Shape,
    Weights,
    ask,
    distance,
    memory_needed,
    refusal,
)
from benchmarks.timing import CLOCKS, NOISY, Timed
from regard.show.terminal.table import text_table
from regard.support.arguments import near_divisors

MODES = ("forward", "step")  # step is forward + backward
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
) -> dict[str, Any]:
    """Measure every shape in every dtype, show the tables, and write layer.json into out_dir.

    compiled: the contenders that are also timed with torch.compile. seconds: the time that a contender may take for one
    figure; slow ones get fewer rounds, at least 2. The file is written after every shape, so that an interrupted run
    keeps its results.
    """
    where = Path(out_dir) / "layer.json"
    settings = {"device": device, "rounds": rounds, "seconds": seconds, "seed": seed, "compiled": list(compiled)}
    results = harness.start("layer", command, device, settings) | {"cases": [], "summary": []}
    names = [name for name in CONTENDERS if name in only]
    names += [name + COMPILED for name in names if name in compiled]
    for shape in shapes:
        for dtype in dtypes:
            if compiled:
                torch.compiler.reset()
            case = _case(shape, Setting(device, dtype, rounds, seconds, seed), names, modes)
            results["cases"].append(case)
            results["summary"] = summary(results["cases"])
            harness.write_json(where, results)
            harness.say("\n" + "\n".join(tables(case)))
    harness.say("\n" + "\n".join(summary_lines(results["summary"])))
    harness.say(f"\n  {where}")
    return results


def _case(shape: Shape, setting: Setting, names: Sequence[str], modes: Sequence[str]) -> dict[str, Any]:
    """One shape in one dtype: build, check, time."""
    dtype = setting.as_json()["dtype"]
    label = f"{shape}, {dtype}"
    harness.stage(f"{label}: checking {len(names)} contenders against float64")
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
    for name in names:
        try:
            layer, away = _build(name, shape, weights, question, setting)
        except _NotTimedError as why:
            case["notes"].append(f"{name}: {why}")
            continue
        layers[name] = layer
        case["contenders"][name] = {"distance": away, "peak_mib": {}, "times": {}}
    for mode in modes:
        calls = {name: _call(layer, question, mode) for name, layer in layers.items()}
        _measure(calls, mode, setting, case, label)
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
        raise _NotTimedError(f"failed: {harness.reason(error)}") from error
    if (why := refusal(away, setting.dtype)) is not None:
        raise _NotTimedError(why)
    return layer, dataclasses.asdict(away)


def _measure(calls: dict[str, Timed], mode: str, setting: Setting, case: dict[str, Any], label: str) -> None:
    """Time all contenders in one mode by every clock of the device, into the case."""
    contenders = case["contenders"]
    if setting.cuda:
        for name, call in calls.items():
            peak = timing.peak_memory(call, setting.device)
            contenders[name]["peak_mib"][mode] = None if peak is None else peak / 2**20
    timings, failures = timing.measure_by_all_clocks(calls, setting, f"{label}, {mode}")
    case["notes"] += [f"{name}: no device time for {mode}: {why}" for name, why in failures.items()]
    for clock, by_name in timings.items():
        for name, ratio in timing.ratios(by_name, OURS).items():
            contenders[name]["times"].setdefault(clock, {})[mode] = by_name[name].as_json() | {"to_ours": ratio}


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


def tables(case: dict[str, Any]) -> list[str]:
    """The tables of one shape and dtype, a table for each clock, fastest contender first."""
    lines = []
    contenders = case["contenders"]
    for clock in CLOCKS:
        measured = {n: c["times"][clock] for n, c in contenders.items() if clock in c["times"]}
        if not measured:
            continue
        modes = [m for m in MODES if any(m in times for times in measured.values())]
        names = sorted(measured, key=lambda n: [measured[n].get(m, {}).get("ms", float("inf")) for m in modes])
        head, columns = ["contender"], [names]
        # The table of eager times has columns for memory, so its names are shorter.
        short = {"forward": "fwd" if clock == "eager" else "forward", "step": "step"}
        for mode in modes:
            rows = [measured[n].get(mode, {}) for n in names]
            head += [f"{short[mode]} ms", "× ours"]
            columns += [same_digits([r.get("ms") for r in rows]), [_times(r.get("to_ours")) for r in rows]]
        if clock == "eager":
            for mode in modes:
                peaks = [contenders[n]["peak_mib"].get(mode) for n in names]
                head.append(f"{short[mode]} MiB")
                columns.append(["-" if p is None else f"{p:.0f}" for p in peaks])
        lines += [f"  {case['label']} · {case['dtype']} · {case['device']}, {clock} clock", ""]
        marked = names.index(OURS) if OURS in names else None
        lines += [*harness.table_lines(head, columns, marked), *_noise(measured), ""]
    for note in case["notes"]:
        lines += harness.wrap(note)
    return lines or ["  nothing was measured"]


def summary(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each figure: the fastest contender, ours relative to it, and the textbook layer relative to ours.

    Compiled contenders are compared with compiled ones only.
    """
    entries = []
    for case in cases:
        for clock in CLOCKS:
            for mode in MODES:
                best = {
                    name: c["times"][clock][mode]["ms"]
                    for name, c in case["contenders"].items()
                    if mode in c["times"].get(clock, {})
                }
                for suffix in ("", COMPILED):
                    group = {n: ms for n, ms in best.items() if n.endswith(COMPILED) == bool(suffix)}
                    if not group:
                        continue
                    fastest = min(group, key=lambda n: group[n])
                    ours, theirs = group.get(OURS + suffix), group.get(TEXTBOOK + suffix)
                    entries.append(
                        {
                            "label": case["label"],
                            "dtype": case["dtype"],
                            "clock": clock,
                            "mode": mode,
                            "compiled": bool(suffix),
                            "fastest": fastest,
                            "ours_to_fastest": None if ours is None else ours / group[fastest],
                            "textbook_to_ours": None if ours is None or theirs is None else theirs / ours,
                        }
                    )
    return entries


def summary_lines(entries: Sequence[dict[str, Any]]) -> list[str]:
    """The summary, at most 80 columns wide: a heading for each shape, dtype and clock, then a line for each mode."""
    lines = ["  Summary: ours ÷ the fastest, and the textbook layer ÷ ours"]
    rows, headings = [], []
    for entry in entries:
        headings.append(f"{entry['label']} · {entry['dtype']} · {entry['clock']} clock")
        mode = entry["mode"] + (COMPILED if entry["compiled"] else "")
        fastest = entry["fastest"].removesuffix(COMPILED)
        rows.append([mode, fastest, _times(entry["ours_to_fastest"]), _times(entry["textbook_to_ours"])])
    head = ["mode", "fastest", "ours ÷ fastest", "textbook ÷ ours"]
    drawn = text_table(head, rows, None, words=2).splitlines()
    lines += ["", "  " + drawn[0]]
    before = None
    for heading, line in zip(headings, drawn[1:], strict=True):
        if heading != before:
            lines.append(f"  {heading}")
        before = heading
        lines.append("  " + line)
    return lines


def _noise(measured: dict[str, Any]) -> list[str]:
    """A warning where rounds differ so much that close ratios mean little."""
    spread = {(n, m): t["median_ms"] / t["best_ms"] for n, modes in measured.items() for m, t in modes.items()}
    name, mode = max(spread, key=lambda at: spread[at])
    worst = spread[name, mode]
    return [f"  noisy: the median of {name}, {mode}, is {worst:.1f} × its best"] if worst >= NOISY else []


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    return harness.run_command("layer", argv, _add_options, _prepare)


def _add_options(parser: argparse.ArgumentParser) -> None:
    harness.timing_options(parser, rounds=20, seconds=3.0, quick="one small shape in float32")
    repeated = "may be repeated"
    parser.add_argument(
        "--shape", action="append", metavar="E,H,B,T", help=f"width, heads, batch size and tokens; {repeated}"
    )
    parser.add_argument("--dtype", action="append", choices=harness.DTYPES, help=f"data type; {repeated}")
    parser.add_argument("--mode", action="append", choices=MODES, help="what to time [default: both]")
    parser.add_argument("--only", metavar="NAMES", help=f"comma-separated, from: {', '.join(CONTENDERS)}")
    parser.add_argument(
        "--compiled", nargs="?", const=",".join(CONTENDERS), default="", metavar="NAMES",
        help="also time these with torch.compile; without names, all",
    )  # fmt: skip


def _prepare(options: argparse.Namespace) -> Callable[..., object]:
    """Check the options; the run that they describe."""
    shapes = [_shape(s) for s in options.shape or ()]
    only = _names(options.only) if options.only else list(CONTENDERS)
    compiled = _names(options.compiled) if options.compiled else []
    device, cuda = harness.find_device(options.device)
    harness.check_positive(options)
    dtypes = options.dtype or ([None] if cuda or options.quick else ["fp32", "bf16"])
    return partial(
        run,
        shapes or (QUICK if options.quick else ON_CUDA if cuda else ON_CPU),
        [harness.find_dtype(dtype, cuda) for dtype in dtypes],
        device,
        compiled,
        out_dir=options.out,
        only=only,
        modes=[mode for mode in MODES if not options.mode or mode in options.mode],
        **harness.limits(options, 5, 0.3),
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
