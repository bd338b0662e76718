"""Fair timing: all contenders in one process, in a new random order each round.

Interleaved, a slow minute of the machine affects all contenders; one after the other, it would affect one of them.
On a CPU the best round counts, because other processes can only add time. The clock rate of a GPU varies in both
directions, so there the median counts.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.harness import Setting, reason, stage

Timed = Callable[[], object]  # what is measured
Clock = Callable[[Timed, int], float]  # (call, times) → seconds for all of them
CLOCKS = ("wall", "device", "eager")
NOISY = 1.5  # median ÷ best from which close ratios mean little


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the best and the median round, and how much was measured."""

    best: float
    median: float
    rounds: int
    calls: int  # per round
    by_median: bool = False  # on a GPU, whose clock rate varies

    @property
    def counts(self) -> float:
        """The figure that is compared."""
        return self.median if self.by_median else self.best

    @property
    def is_noisy(self) -> bool:
        """Do the rounds differ so much that close ratios mean little?"""
        return self.median >= NOISY * self.best

    @property
    def noise(self) -> str:
        """The noise in words."""
        return f"the median is {self.median / self.best:.1f} × the best"

    def as_json(self) -> dict[str, Any]:
        """The fields in milliseconds."""
        return {
            "ms": self.counts * 1e3,
            "best_ms": self.best * 1e3,
            "median_ms": self.median * 1e3,
            "rounds": self.rounds,
            "calls": self.calls,
        }


def wall(call: Timed, times: int) -> float:
    """Wall-clock time on the CPU."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def eager(call: Timed, times: int) -> float:
    """Wall-clock time until the GPU has finished: its own time, or Python's where Python is slower."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def device(call: Timed, times: int) -> float:
    """Time by CUDA events, for the replay of a captured graph: the kernels alone, without Python."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def capture(call: Timed, warmups: int = 3) -> Timed:
    """Capture `call` in a CUDA graph and return its replay. Raises what capturing raises."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warmups):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def peak_memory(call: Timed, on: torch.device | str) -> int | None:
    """Bytes that one call allocates at its peak; None on the CPU, where PyTorch does not count."""
    if torch.device(on).type != "cuda":
        return None
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def free_memory(on: torch.device | str) -> int | None:
    """Bytes that are free on this device, or None where the system does not say."""
    if torch.device(on).type == "cuda":
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return int(torch.cuda.mem_get_info()[0]) + cached
    try:
        with open("/proc/meminfo") as lines:
            available = next((line for line in lines if line.startswith("MemAvailable:")), None)
        if available is not None:
            return int(available.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def interleave(
    calls: Mapping[str, Timed],
    clock: Clock = wall,
    *,
    rounds: int = 20,
    seconds: float = 3.0,
    at_least: float = 0.05,
    seed: int = 0,
    by_median: bool = False,
) -> dict[str, Timing]:
    """Time all calls side by side.

    A measurement repeats a call until it lasts `at_least` seconds. A contender gets as many rounds as fit into
    `seconds`, at least 2 and at most `rounds`, spread evenly over the run.
    """
    once, wanted, times = {}, {}, {}
    for name, call in calls.items():
        once[name] = clock(call, 1)
        if once[name] < at_least:  # the first call may be slower than the others
            once[name] = clock(call, 3) / 3
        times[name] = max(1, round(at_least / max(once[name], 1e-7)))
        wanted[name] = min(max(2, rounds), max(2, int(seconds / max(times[name] * once[name], 1e-7))))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order = [name for together in schedule(wanted, seed) for name in together]
    with _no_collection():
        for name in order:
            samples[name].append(clock(calls[name], times[name]) / times[name])
    return {name: Timing(min(s), statistics.median(s), len(s), times[name], by_median) for name, s in samples.items()}


def schedule(wanted: Mapping[str, int], seed: int = 0) -> list[list[str]]:
    """The contenders of each round in random order, such that each has its number of rounds, evenly spread.

    >>> [sorted(together) for together in schedule({"quick": 4, "slow": 2})]
    [['quick'], ['quick', 'slow'], ['quick'], ['quick', 'slow']]
    """
    generator = random.Random(seed)
    rounds = max(wanted.values(), default=0)
    plan = []
    for r in range(rounds):
        together = [name for name, n in wanted.items() if (r + 1) * n // rounds > r * n // rounds]
        generator.shuffle(together)
        plan.append(together)
    return plan


def ratios(timings: Mapping[str, Timing], base: str) -> dict[str, float | None]:
    """Each time relative to that of `base`; None where that was not measured."""
    mine = timings[base].counts if base in timings else None
    return {name: None if mine is None else t.counts / mine for name, t in timings.items()}


def measure(calls: Mapping[str, Timed], setting: Setting, at_least: float = 0.0) -> dict[str, Timing]:
    """Time all calls by the wall clock; on a GPU, until it has finished, and the median counts."""
    return _interleave(calls, eager if setting.cuda else wall, setting, at_least)


def measure_by_all_clocks(
    calls: Mapping[str, Timed], setting: Setting, label: str, graphs: bool = True
) -> tuple[dict[str, dict[str, Timing]], dict[str, str]]:
    """Time all calls by every clock of the device: wall on a CPU; on a GPU eager, and device by CUDA graphs.

    Returns {clock: {name: timing}}, and {name: reason} for calls that cannot be captured. graphs: measure device time.
    """
    stage(f"{label}: timing")
    if not setting.cuda:
        return {"wall": measure(calls, setting, 0.05)}, {}
    timings = {"eager": measure(calls, setting, 0.02)}
    failures: dict[str, str] = {}
    if graphs:
        stage(f"{label}: capturing and timing graphs")
        replays: dict[str, Timed] = {}
        for name, call in calls.items():
            try:
                replays[name] = capture(call)
            except Exception as error:  # any error means that this contender cannot be captured
                failures[name] = reason(error)
        timings["device"] = _interleave(replays, device, setting, 0.02)
        replays.clear()
    torch.cuda.empty_cache()
    return timings, failures


def _interleave(calls: Mapping[str, Timed], clock: Clock, setting: Setting, at_least: float) -> dict[str, Timing]:
    return interleave(
        calls,
        clock,
        rounds=setting.rounds,
        seconds=setting.seconds,
        at_least=at_least,
        seed=setting.seed,
        by_median=setting.cuda,
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Switch Python's garbage collector off: it runs at unpredictable times."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
