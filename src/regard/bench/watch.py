"""The price of seeing: attention with every statistic against attention alone, its memory, and whole models.

    python -m regard.bench.watch --quick
    python -m regard.bench.watch --device cuda

Statistics are checked against float64 first; nothing is timed if they are wrong. On a GPU there are two clocks: the
device's own, by replay of a CUDA graph, and the wall's, Python included.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regard.bench import options, timing
from regard.bench import watch_cases as cases
from regard.bench.options import DTYPES, Setting
from regard.bench.report import Progress, column, machine, machine_lines, reason, say, table, wrap, write_json
from regard.bench.tables import NOISY
from regard.bench.timing import Call, Clock
from regard.bench.watch_cases import Heads, ModelSize, WrongError

KINDS = ("kernel", "memory", "model")
CLOCKS = ("wall", "device", "eager")  # wall on a CPU, the others on a GPU
SMALL, WIDE = Heads(12, 64), Heads(16, 128)
GPT2 = ModelSize()
TOKENS: dict[str, dict[str, tuple[int, ...]]] = {
    "cpu": {"kernel": (1024, 4096), "memory": (4096, 16384), "model": (1024,)},
    "cuda": {"kernel": (4096, 16384, 65536), "memory": (131072,), "model": (4096, 16384)},
    "quick": {"kernel": (256,), "memory": (2048,), "model": (128,)},
}
QUICK_HEADS, QUICK_MODEL = Heads(4, 32), ModelSize("a GPT-2 of 2 layers", 2, 4, 32, 499)


def run(
    setting: Setting,
    kinds: Sequence[str] = KINDS,
    heads: Sequence[Heads] = (SMALL,),
    tokens: Mapping[str, Sequence[int]] = TOKENS["cpu"],
    out_dir: str | Path = "bench-out",
    *,
    model: ModelSize = GPT2,
    checked_at: Sequence[int] = cases.CHECKED_AT,
    weigh_models: bool = True,
    command: str = "",
    show: Callable[[str], None] = say,
) -> dict[str, Any]:
    """Check, then measure every case, show the tables, and write watch.json into out_dir.

    tokens: {kind: lengths}. weigh_models: measure the memory of models too, which on the CPU takes a process for each.
    The file is written after every case, so that a run that is cut short keeps what it has.
    """
    where = Path(out_dir) / "watch.json"
    if setting.cuda:
        torch.cuda.set_device(torch.device(setting.device).index or 0)  # streams and memory are of the current one
    results: dict[str, Any] = {
        "benchmark": "watch", "machine": machine(command), "settings": setting.named(),
        "checks": [], **{kind: [] for kind in kinds},
    }  # fmt: skip
    show("\n".join(machine_lines(results["machine"])))
    shapes = list(heads) if {"kernel", "memory"} & set(kinds) else []
    if "model" in kinds and Heads(model.heads, model.width) not in shapes:
        shapes.append(Heads(model.heads, model.width))
    with Progress() as progress:
        for shape in shapes:
            progress.stage(f"{shape}, {setting.words}: checking every statistic against float64")
            for T in checked_at:
                errors = cases.check(shape, T, setting.dtype, setting.device, setting.seed)
                results["checks"].append({**dataclasses.asdict(shape), "tokens": T, "away": errors})
    show("\n" + "\n".join(check_lines(results["checks"], setting)))
    jobs = [
        *((kind, partial(_JOBS[kind], shape, T)) for kind in KINDS[:2] for shape in heads for T in tokens[kind]),
        *(("model", partial(_model, model, weigh_models, T)) for T in tokens["model"]),
    ]
    for kind, job in jobs:
        if kind in kinds:
            with Progress() as progress:
                case = job(setting, progress)
            results[kind].append(case)
            write_json(where, results)
            show("\n" + "\n".join(case_lines(case)))
    if "kernel" in kinds:
        show("\n" + "\n".join(summary_lines(results["kernel"])))
    show(f"\n  {where}")
    return results


def _kernel(heads: Heads, T: int, setting: Setting, progress: Progress) -> dict[str, Any]:
    """One attention: alone, with statistics, with explicit weights, and a peer's one statistic."""
    label = f"{heads}, T={T}"
    runs: dict[str, cases.Attention] = {cases.SDPA: cases.alone, cases.STATISTICS: cases.with_statistics}
    notes: list[str] = []
    if T <= cases.EXPLICIT_UP_TO:
        need, room = 5 * 4 * heads.number * T * T, timing.free_memory(setting.device)
        if room is None or need < 0.8 * room:
            runs[cases.EXPLICIT] = cases.with_explicit_weights
        else:
            notes.append(
                f"{cases.EXPLICIT}: not tried: needs {need / 2**30:.0f} GiB and {room / 2**30:.0f} GiB are free"
            )
    if setting.cuda:
        try:
            reduce = cases.column_sum()
            excuse = cases.check_column_sum(reduce, heads, setting.dtype, setting.device)
        except ImportError:
            excuse = "not installed; try pip install flash-colreduce"
        except Exception as error:  # whatever ails a peer must not end the run
            excuse = f"failed: {reason(error)}"
        if excuse is None:
            runs[cases.COLUMN_SUM] = reduce
        else:
            notes.append(f"flash-colreduce: {excuse}")
    inputs = cases.draw(heads, T, setting.dtype, setting.device, setting.seed)
    calls: dict[str, Call] = {name: partial(one, *inputs) for name, one in runs.items()}
    with torch.no_grad():
        times, more = _time(calls, cases.SDPA, setting, f"{label}, {setting.words}", progress, graphs=True)
    return {
        "kind": "kernel", "label": f"{label}, causal, B=1 · {setting.words}", **dataclasses.asdict(heads), "tokens": T,
        "base": cases.SDPA, "times": times, "notes": notes + more,
    }  # fmt: skip


def _memory(heads: Heads, T: int, setting: Setting, progress: Progress) -> dict[str, Any]:
    """What statistics take beyond q, k, v and out, against the weights that are not kept."""
    progress.stage(f"{heads}, T={T}, {setting.words}: memory")
    told: dict[str, Any] = {"heads": heads, "T": T, "dtype": setting.dtype, "seed": setting.seed}
    if setting.cuda:
        found = cases.peak_beyond_inputs(device=setting.device, **told)
    else:
        found = cases.in_a_process_of_its_own("peak_beyond_inputs", **told)
    return {
        "kind": "memory", "label": f"{heads}, T={T}, causal, B=1 · {setting.words}", **dataclasses.asdict(heads),
        "tokens": T, "beyond_mib": found / 2**20,
        "weights_mib": heads.number * T * T * torch.finfo(setting.dtype).bits / 8 / 2**20,
    }  # fmt: skip


def _model(size: ModelSize, weigh: bool, T: int, setting: Setting, progress: Progress) -> dict[str, Any]:
    """A whole forward: unwatched, watched, and with transformers' own explicit weights."""
    label = f"{size.name}, T={T}, B=1 · {setting.words}"
    case: dict[str, Any] = {
        "kind": "model", "label": label, **dataclasses.asdict(size), "tokens": T, "base": cases.UNWATCHED,
        "same_bits": None, "times": {}, "peak_mib": {}, "notes": [],
    }  # fmt: skip
    told: dict[str, Any] = {"size": size, "T": T, "dtype": setting.dtype, "seed": setting.seed}
    progress.stage(f"{label}: building and checking")
    try:
        calls = cases.models(device=setting.device, **told)
    except ImportError as error:
        case["notes"].append(f"not measured: transformers is not installed ({error})")
        return case
    case["same_bits"] = cases.check_models(calls, size, setting.dtype)
    if not case["same_bits"]:
        case["notes"].append("the watched output differs from the unwatched one within rounding")
    for name in calls if weigh else ():
        progress.stage(f"{label}: memory, {name}")
        peak = timing.peak_memory(calls[name], setting.device)
        if peak is None:
            peak = cases.in_a_process_of_its_own("peak_of_model", name=name, **told)
        case["peak_mib"][name] = peak / 2**20
    case["times"], notes = _time(calls, cases.UNWATCHED, setting, label, progress, graphs=False)
    case["notes"] += notes
    return case


_JOBS: dict[str, Callable[..., dict[str, Any]]] = {"kernel": _kernel, "memory": _memory}


def _time(
    calls: dict[str, Call], base: str, setting: Setting, label: str, progress: Progress, graphs: bool
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Every call by every clock, side by side: {name: {clock: times}}, and who could not be captured."""
    found: dict[str, dict[str, Any]] = {name: {} for name in calls}
    notes: list[str] = []

    def all_by(clock: Clock, clock_name: str, timed: dict[str, Call], at_least: float) -> None:
        progress.stage(f"{label}: {clock_name} clock")
        times = timing.interleave(
            timed, clock, rounds=setting.rounds, seconds=setting.seconds, at_least=at_least, seed=setting.seed,
            tick=progress.tick,
        )  # fmt: skip
        times = {name: dataclasses.replace(t, by_median=clock_name != "wall") for name, t in times.items()}
        for name, ratio in timing.ratios(times, base).items():
            t = times[name]
            found[name][clock_name] = {
                "ms": t.counts * 1e3, "best_ms": t.best * 1e3, "median_ms": t.median * 1e3, "rounds": t.rounds,
                "calls": t.calls, "to_base": ratio.to_ours,
            }  # fmt: skip
            if t.median >= NOISY * t.best:
                notes.append(
                    f"noisy: {name}: by the {clock_name} clock the median is {t.median / t.best:.1f} × the best"
                )

    if not setting.cuda:
        all_by(timing.wall, "wall", calls, 0.05)
        return found, notes
    all_by(timing.eager, "eager", calls, 0.02)
    if graphs:
        progress.stage(f"{label}: capturing graphs")
        replays: dict[str, Call] = {}
        for name, call in calls.items():
            try:
                replays[name] = timing.capture(call)
            except Exception as error:  # a graph that cannot be captured is a fact about the contender
                notes.append(f"{name}: eager clock only, it cannot be captured in a graph: {reason(error)}")
        all_by(timing.device, "device", replays, 0.02)
        replays.clear()
    torch.cuda.empty_cache()
    return found, notes


def check_lines(checks: Sequence[dict[str, Any]], setting: Setting) -> list[str]:
    """What was checked, and the worst that was found."""
    away = {name: max(c["away"][name] for c in checks) for name in checks[0]["away"]} if checks else {}
    worst = max(away, key=lambda name: away[name], default="")
    shapes = sorted({f"{c['number']} × {c['width']}, T={c['tokens']}" for c in checks})
    lines = [f"  checked against float64, {setting.words}: {'; '.join(shapes)}"]
    if worst:
        limit = cases.TOLERANCE[setting.dtype]
        lines.append(f"  {len(away)} statistics; the worst, {worst}, is {away[worst]:.1e} away; {limit:g} is allowed")
    return [part for line in lines for part in wrap(line.strip())]


def case_lines(case: dict[str, Any]) -> list[str]:
    """The tables of one case, one for each clock, at most 80 columns wide."""
    if case["kind"] == "memory":
        found = [f"{case[n]:,.0f} MiB" for n in ("beyond_mib", "weights_mib")]
        rows = [["beyond q, k, v and out", found[0]], ["the T × T weights, had they been kept", found[1]]]
        return [f"  {case['label']}", "", *table(["memory of SDPA + statistics", ""], rows, marked=0)]
    lines: list[str] = []
    names = list(case["times"])
    for clock in CLOCKS:
        times = [case["times"][name].get(clock, {}) for name in names]
        if not any(times):
            continue
        what = "attention" if case["kind"] == "kernel" else "forward"
        head = [what, f"{clock} ms", f"× {case['base']}"]
        columns = [names, column([t.get("ms") for t in times]), [_ratio(t.get("to_base")) for t in times]]
        if case.get("peak_mib"):
            head.append("MiB beyond weights")
            columns.append(["-" if (n := case["peak_mib"].get(name)) is None else f"{n:,.0f}" for name in names])
        lines += [""] if lines else []
        lines += [f"  {case['label']}, {clock} clock", "", *table(head, list(zip(*columns, strict=True)), marked=1)]
    for note in case["notes"]:
        lines += wrap(note)
    return lines or [f"  {case['label']}: nothing was measured"]


def summary_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """SDPA with statistics ÷ SDPA alone, a line for each shape, a column for each clock."""
    clocks = [c for c in CLOCKS if any(c in case["times"][cases.SDPA] for case in found)]
    rows = []
    for case in found:
        alone, seen = (case["times"][name] for name in (cases.SDPA, cases.STATISTICS))
        cells = [f"{case['number']} heads of {case['width']}", f"{case['tokens']}"]
        for clock in clocks:
            cells += [*(column([t[clock]["ms"]])[0] if clock in t else "-" for t in (alone, seen))]
            cells.append(_ratio(seen.get(clock, {}).get("to_base")))
        rows.append(cells)
    head = ["shape", "tokens", *(h for c in clocks for h in (f"{c} ms", "seen ms", "ratio"))]
    return ["  Summary: SDPA + statistics ÷ SDPA alone", "", *table(head, rows)]


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = options.parser(
        "watch", "Time and weigh watching against not watching.", rounds=20, seconds=3.0,
        quick="small sizes, a few seconds",
    )  # fmt: skip
    parser.add_argument("--case", action="append", choices=KINDS, help="may be repeated (default: all)")
    parser.add_argument("--tokens", action="append", type=int, metavar="T", help="may be repeated")
    parser.add_argument("--heads", action="append", metavar="HxD", help="heads x width, as 12x64; may be repeated")
    parser.add_argument("--dtype", choices=sorted(DTYPES), help="default: bf16 on a GPU, fp32 on a CPU")
    told = parser.parse_args(argv)
    with options.refusing(parser):
        cuda = options.on_cuda(told.device)
        options.check_above_0(told)
        heads = [Heads.read(text) for text in told.heads or ()]
        for T in told.tokens or ():
            if T < 2:
                raise ValueError(f"--tokens {T} must be at least 2: one token has nothing to look back at")
    if told.threads:
        torch.set_num_threads(told.threads)
    setting = Setting(
        told.device, DTYPES[told.dtype or ("bf16" if cuda else "fp32")], **options.patience(told, 3, 0.1)
    )  # fmt: skip
    usual = TOKENS["quick" if told.quick else "cuda" if cuda else "cpu"]
    try:
        run(
            setting, [kind for kind in KINDS if not told.case or kind in told.case],
            heads or ([QUICK_HEADS] if told.quick else [SMALL, WIDE] if cuda else [SMALL]),
            {kind: told.tokens or usual[kind] for kind in KINDS}, told.out,
            model=QUICK_MODEL if told.quick else GPT2,
            checked_at=cases.CHECKED_AT[:1] if told.quick else cases.CHECKED_AT, weigh_models=cuda or not told.quick,
            command=shlex.join(["python", "-m", "regard.bench.watch", *argv]),
        )  # fmt: skip
    except WrongError as error:
        parser.exit(1, f"{error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
