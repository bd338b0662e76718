"""Timing by every clock of a device: wall on a CPU; on a GPU eager, Python included, and device, by CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from regard.bench import timing
from regard.bench.progress import StageProgress
from regard.bench.report import reason
from regard.bench.settings import Setting
from regard.bench.timing import Clock, Timed, Timing

CLOCKS = ("wall", "device", "eager")


def time_by_all_clocks(
    calls: Mapping[str, Timed], setting: Setting, label: str, progress: StageProgress, graphs: bool = True
) -> tuple[dict[str, dict[str, Timing]], dict[str, str]]:
    """Time all calls side by side: {clock: {name: timing}}, and {name: reason} for those that cannot be captured.

    graphs: measure device time too, on a GPU.
    """

    def interleave(clock: Clock, name: str, timed: Mapping[str, Timed], at_least: float) -> dict[str, Timing]:
        progress.stage(f"{label}, {name} clock")
        return timing.interleave(
            timed,
            clock,
            rounds=setting.rounds,
            seconds=setting.seconds,
            at_least=at_least,
            seed=setting.seed,
            by_median=setting.cuda,
            tick=progress.tick,
        )

    if not setting.cuda:
        return {"wall": interleave(timing.wall, "wall", calls, 0.05)}, {}
    timings = {"eager": interleave(timing.eager, "eager", calls, 0.02)}
    failures: dict[str, str] = {}
    if graphs:
        progress.stage(f"{label}, capturing graphs")
        replays: dict[str, Timed] = {}
        for name, call in calls.items():
            try:
                replays[name] = timing.capture(call)
            except Exception as error:  # any error means that this contender cannot be captured
                failures[name] = reason(error)
        timings["device"] = interleave(timing.device, "device", replays, 0.02)
        replays.clear()
    torch.cuda.empty_cache()
    return timings, failures
