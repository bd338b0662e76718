"""Results of the layer benchmark as text: a table for each shape, dtype and clock, then a summary.

At most 80 columns, fastest first, ours marked by an arrow. Times are the best of the rounds, on a GPU their median.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.bench.clocks import CLOCKS
from regard.bench.options import MODES
from regard.bench.peers import COMPILED, OURS, TEXTBOOK
from regard.bench.plot import Panel
from regard.bench.report import table_lines, wrap
from regard.bench.timing import NOISY
from regard.show.terminal.table import same_digits, text_table


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
        lines += [*table_lines(head, columns, marked), *_noise(measured), ""]
    for note in case["notes"]:
        lines += wrap(note)
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


def panels(case: dict[str, Any]) -> list[Panel]:
    """Bars for the plot, a panel for each mode: by the device clock where there is one."""
    contenders = case["contenders"]
    clock = next((c for c in CLOCKS if any(c in one["times"] for one in contenders.values())), None)
    drawn = []
    for mode in MODES if clock else ():
        times = {n: one["times"].get(clock, {}).get(mode) for n, one in contenders.items()}
        bars = sorted((t["ms"], n) for n, t in times.items() if t is not None)
        if bars:
            title = f"{case['label']}, {case['dtype']}: {mode}"
            drawn.append(Panel(title, [(n, ms, n.removesuffix(COMPILED) == OURS) for ms, n in bars]))
    return drawn


def _noise(measured: dict[str, Any]) -> list[str]:
    """A warning where rounds differ so much that close ratios mean little."""
    spread = {(n, m): t["median_ms"] / t["best_ms"] for n, modes in measured.items() for m, t in modes.items()}
    name, mode = max(spread, key=lambda at: spread[at])
    worst = spread[name, mode]
    return [f"  noisy: the median of {name}, {mode}, is {worst:.1f} × its best"] if worst >= NOISY else []


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"
