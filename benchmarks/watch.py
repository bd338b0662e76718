"""The cost of watching: attention with every statistic against attention alone, its memory, and complete models.

    python -m benchmarks watch --device cuda

Statistics are compared with float64 first; if they are wrong, nothing is timed. On a GPU there are two clocks: device,
by replay of a CUDA graph, and eager, the wall-clock time including Python.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import harness, timing
from benchmarks import watch_cases as cases
from benchmarks.harness import Setting, same_digits
from benchmarks.timing import CLOCKS, Timed
from benchmarks.watch_cases import HeadShape, ModelShape
from regard.show.terminal.table import text_table

KINDS = ("kernel", "memory", "model")
SMALL, WIDE = HeadShape(12, 64), HeadShape(16, 128)
GPT2 = ModelShape()
TOKENS: dict[str, dict[str, tuple[int, ...]]] = {
    "cpu": {"kernel": (1024, 4096), "memory": (4096, 16384), "model": (1024,)},
    "cuda": {"kernel": (4096, 16384, 65536), "memory": (131072,), "model": (4096, 16384)},
    "quick": {"kernel": (256,), "memory": (2048,), "model": (128,)},
}
QUICK_HEADS, QUICK_MODEL = HeadShape(4, 32), ModelShape("a GPT-2 of 2 layers", 2, 4, 32, 499)


def run(
    setting: Setting,
    kinds: Sequence[str] = KINDS,
    heads: Sequence[HeadShape] = (SMALL,),
    tokens: Mapping[str, Sequence[int]] = TOKENS["cpu"],
    out_dir: str | Path = "bench-out",
    *,
    model: ModelShape = GPT2,
    checked_at: Sequence[int] = cases.CHECKED_AT,
    weigh_models: bool = True,
    command: str = "",
) -> dict[str, Any]:
    """Check, then measure every case, show the tables, and write watch.json into out_dir.

    tokens: {kind: lengths}. weigh_models: measure the memory of models too, on the CPU in a new process for each.
    The file is written after every case, so that an interrupted run keeps its results.
    """
    where = Path(out_dir) / "watch.json"
    results = harness.start("watch", command, setting.device, setting.as_json())
    results |= {"checks": [], **{kind: [] for kind in kinds}}
    shapes = list(heads) if {"kernel", "memory"} & set(kinds) else []
    if "model" in kinds and HeadShape(model.heads, model.width) not in shapes:
        shapes.append(HeadShape(model.heads, model.width))
    for shape in shapes:
        harness.stage(f"{shape}, {setting.label}: comparing every statistic with float64")
        for T in checked_at:
            errors = cases.check(shape, T, setting.dtype, setting.device, setting.seed)
            results["checks"].append({**dataclasses.asdict(shape), "tokens": T, "away": errors})
    harness.say("\n" + "\n".join(check_lines(results["checks"], setting)))
    jobs = [
        *((kind, partial(_JOBS[kind], shape, T)) for kind in KINDS[:2] for shape in heads for T in tokens[kind]),
        *(("model", partial(_model, model, weigh_models, T)) for T in tokens["model"]),
    ]
    for kind, job in jobs:
        if kind in kinds:
            case = job(setting)
            results[kind].append(case)
            harness.write_json(where, results)
            harness.say("\n" + "\n".join(case_lines(case)))
    if "kernel" in kinds:
        harness.say("\n" + "\n".join(summary_lines(results["kernel"])))
    harness.say(f"\n  {where}")
    return results


def _kernel(heads: HeadShape, T: int, setting: Setting) -> dict[str, Any]:
    """One attention call: alone, with statistics, with explicit weights, and another library's one statistic."""
    label = f"{heads}, T={T}"
    runs: dict[str, cases.Attention] = {cases.SDPA: cases.alone, cases.STATISTICS: cases.with_statistics}
    notes: list[str] = []
    if T <= cases.EXPLICIT_UP_TO:
        need, free = 5 * 4 * heads.number * T * T, timing.free_memory(setting.device)
        if free is None or need < 0.8 * free:
            runs[cases.EXPLICIT] = cases.with_explicit_weights
        else:
            notes.append(
                f"{cases.EXPLICIT}: not tried: needs {need / 2**30:.0f} GiB and {free / 2**30:.0f} GiB are free"
            )
    if setting.cuda:
        try:
            reduce = cases.column_sum()
            why = cases.check_column_sum(reduce, heads, setting.dtype, setting.device)
        except ImportError:
            why = "not installed; try pip install flash-colreduce"
        except Exception as error:  # a contender that fails must not end the run
            why = f"failed: {harness.reason(error)}"
        if why is None:
            runs[cases.COLUMN_SUM] = reduce
        else:
            notes.append(f"flash-colreduce: {why}")
    inputs = cases.draw(heads, T, setting.dtype, setting.device, setting.seed)
    calls: dict[str, Timed] = {name: partial(one, *inputs) for name, one in runs.items()}
    with torch.no_grad():
        times, more = _time(calls, cases.SDPA, setting, f"{label}, {setting.label}", graphs=True)
    return {
        "kind": "kernel",
        "label": f"{label}, causal, B=1 · {setting.label}",
        **dataclasses.asdict(heads),
        "tokens": T,
        "base": cases.SDPA,
        "times": times,
        "notes": notes + more,
    }


def _memory(heads: HeadShape, T: int, setting: Setting) -> dict[str, Any]:
    """The memory of statistics beyond q, k, v and out, next to the size of the weights, which are not kept."""
    harness.stage(f"{heads}, T={T}, {setting.label}: memory")
    arguments: dict[str, Any] = {"heads": heads, "T": T, "dtype": setting.dtype, "seed": setting.seed}
    if setting.cuda:
        peak = cases.peak_beyond_inputs(device=setting.device, **arguments)
    else:
        peak = cases.in_a_new_process("peak_beyond_inputs", **arguments)
    return {
        "kind": "memory",
        "label": f"{heads}, T={T}, causal, B=1 · {setting.label}",
        **dataclasses.asdict(heads),
        "tokens": T,
        "beyond_mib": peak / 2**20,
        "weights_mib": heads.number * T * T * torch.finfo(setting.dtype).bits / 8 / 2**20,
    }


def _model(size: ModelShape, weigh: bool, T: int, setting: Setting) -> dict[str, Any]:
    """The forward of a model: unwatched, watched, and with transformers' output_attentions."""
    label = f"{size.name}, T={T}, B=1 · {setting.label}"
    case: dict[str, Any] = {
        "kind": "model",
        "label": label,
        **dataclasses.asdict(size),
        "tokens": T,
        "base": cases.UNWATCHED,
        "same_bits": None,
        "times": {},
        "peak_mib": {},
        "notes": [],
    }
    arguments: dict[str, Any] = {"size": size, "T": T, "dtype": setting.dtype, "seed": setting.seed}
    harness.stage(f"{label}: building and checking")
    try:
        calls = cases.models(device=setting.device, **arguments)
    except ImportError as error:
        case["notes"].append(f"not measured: transformers is not installed ({error})")
        return case
    case["same_bits"] = cases.check_models(calls, size, setting.dtype)
    if not case["same_bits"]:
        case["notes"].append("the watched output differs from the unwatched one within rounding")
    for name in calls if weigh else ():
        harness.stage(f"{label}: memory, {name}")
        peak = timing.peak_memory(calls[name], setting.device)
        if peak is None:
            peak = cases.in_a_new_process("peak_of_model", name=name, **arguments)
        case["peak_mib"][name] = peak / 2**20
    case["times"], notes = _time(calls, cases.UNWATCHED, setting, label, graphs=False)
    case["notes"] += notes
    return case


_JOBS: dict[str, Callable[..., dict[str, Any]]] = {"kernel": _kernel, "memory": _memory}


def _time(
    calls: dict[str, Timed], base: str, setting: Setting, label: str, graphs: bool
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Time every call by every clock: {name: {clock: times}}, and notes on noise and failed captures."""
    timings, failures = timing.measure_by_all_clocks(calls, setting, label, graphs)
    times: dict[str, dict[str, Any]] = {name: {} for name in calls}
    notes: list[str] = []
    for clock, by_name in timings.items():
        for name, ratio in timing.ratios(by_name, base).items():
            times[name][clock] = by_name[name].as_json() | {"to_base": ratio}
            if by_name[name].is_noisy:
                notes.append(f"noisy: {name}: by the {clock} clock {by_name[name].noise}")
    for name, why in failures.items():
        notes.append(f"{name}: eager clock only, it cannot be captured in a graph: {why}")
    return times, notes


def check_lines(checks: Sequence[dict[str, Any]], setting: Setting) -> list[str]:
    """The shapes that were checked, and the statistic with the largest error."""
    away = {name: max(c["away"][name] for c in checks) for name in checks[0]["away"]} if checks else {}
    worst = max(away, key=lambda name: away[name], default="")
    shapes = sorted({f"{c['number']} × {c['width']}, T={c['tokens']}" for c in checks})
    lines = [f"  checked against float64, {setting.label}: {'; '.join(shapes)}"]
    if worst:
        limit = cases.TOLERANCE[setting.dtype]
        lines.append(f"  {len(away)} statistics; the worst, {worst}, is {away[worst]:.1e} away; {limit:g} is allowed")
    return [part for line in lines for part in harness.wrap(line.strip())]


def case_lines(case: dict[str, Any]) -> list[str]:
    """The tables of one case, one for each clock, at most 80 columns wide."""
    if case["kind"] == "memory":
        sizes = [f"{case[n]:,.0f} MiB" for n in ("beyond_mib", "weights_mib")]
        names = ["beyond q, k, v and out", "the T × T weights, had they been kept"]
        return [
            f"  {case['label']}",
            "",
            *harness.table_lines(["memory of SDPA + statistics", ""], [names, sizes], marked=0),
        ]
    lines: list[str] = []
    names = list(case["times"])
    for clock in CLOCKS:
        times = [case["times"][name].get(clock, {}) for name in names]
        if not any(times):
            continue
        what = "attention" if case["kind"] == "kernel" else "forward"
        head = [what, f"{clock} ms", f"× {case['base']}"]
        columns = [names, same_digits([t.get("ms") for t in times]), [_ratio(t.get("to_base")) for t in times]]
        if case.get("peak_mib"):
            head.append("MiB beyond weights")
            columns.append(["-" if (n := case["peak_mib"].get(name)) is None else f"{n:,.0f}" for name in names])
        lines += [""] if lines else []
        lines += [f"  {case['label']}, {clock} clock", "", *harness.table_lines(head, columns, marked=1)]
    for note in case["notes"]:
        lines += harness.wrap(note)
    return lines or [f"  {case['label']}: nothing was measured"]


def summary_lines(kernels: Sequence[dict[str, Any]]) -> list[str]:
    """SDPA with statistics ÷ SDPA alone, a line for each shape, a column for each clock."""
    clocks = [c for c in CLOCKS if any(c in case["times"][cases.SDPA] for case in kernels)]
    rows = []
    for case in kernels:
        alone, seen = (case["times"][name] for name in (cases.SDPA, cases.STATISTICS))
        cells = [f"{case['number']} heads of {case['width']}", f"{case['tokens']}"]
        for clock in clocks:
            cells += [*(same_digits([t[clock]["ms"]])[0] if clock in t else "-" for t in (alone, seen))]
            cells.append(_ratio(seen.get(clock, {}).get("to_base")))
        rows.append(cells)
    head = ["shape", "tokens", *(h for c in clocks for h in (f"{c} ms", "seen ms", "ratio"))]
    return ["  Summary: SDPA + statistics ÷ SDPA alone", "", *text_table(head, rows, None, words=1).splitlines()]


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    return harness.run_command("watch", argv, _add_options, _prepare)


def _add_options(parser: argparse.ArgumentParser) -> None:
    harness.timing_options(parser, rounds=20, seconds=3.0, quick="small sizes")
    parser.add_argument("--case", action="append", choices=KINDS, help="what to measure; may be repeated")
    parser.add_argument("--tokens", action="append", type=int, help="length of the text; may be repeated")
    parser.add_argument("--heads", action="append", metavar="HxD", help="number and width of heads; may be repeated")
    harness.dtype_option(parser)


def _prepare(options: argparse.Namespace) -> Callable[..., object]:
    """Check the options; the run that they describe."""
    device, cuda = harness.find_device(options.device)
    harness.check_positive(options)
    heads = [HeadShape.parse(text) for text in options.heads or ()]
    for T in options.tokens or ():
        if T < 2:
            raise ValueError(f"--tokens {T} must be at least 2: one token has nothing to look back at")
    default = TOKENS["quick" if options.quick else "cuda" if cuda else "cpu"]
    return partial(
        run,
        Setting(device, harness.find_dtype(options.dtype, cuda), **harness.limits(options, 3, 0.1)),
        [kind for kind in KINDS if not options.case or kind in options.case],
        heads or ([QUICK_HEADS] if options.quick else [SMALL, WIDE] if cuda else [SMALL]),
        {kind: options.tokens or default[kind] for kind in KINDS},
        options.out,
        model=QUICK_MODEL if options.quick else GPT2,
        checked_at=cases.CHECKED_AT[:1] if options.quick else cases.CHECKED_AT,
        weigh_models=cuda or not options.quick,
    )
