"""Clocks that are fair: all contenders in one process, in a new random order each round.

One run after the other measures the machine's mood as much as the code. Interleaved, a slow minute hits everybody.
On a CPU the best of many rounds is what the code can do, since other work only ever adds time; a GPU's clock rises and
falls, so there a lucky round can be too good, and the median counts.
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

import torch

Call = Callable[[], object]
Clock = Callable[[Call, int], float]  # (call, times) → seconds for all of them
Tick = Callable[[int, int], None]  # (measurements done, measurements in all)


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the best and the median round, and how much was measured."""

    best: float
    median: float
    rounds: int
    calls: int  # per round
    by_median: bool = False  # on a GPU, whose clock rises and falls

    @property
    def counts(self) -> float:
        """The figure that is compared."""
        return self.median if self.by_median else self.best


@dataclass(frozen=True)
class Ratio:
    """A contender's time, as a multiple of the fastest contender's and of ours."""

    to_fastest: float
    to_ours: float | None


def wall(call: Call, times: int) -> float:
    """The clock on the wall, for the CPU."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def eager(call: Call, times: int) -> float:
    """The clock on the wall until the GPU is done: device time, or Python's where Python is slower."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def device(call: Call, times: int) -> float:
    """The GPU's own clock, for the replay of a captured graph: what the kernels take, without Python."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def capture(call: Call, warmups: int = 3) -> Call:
    """Record what `call` does on the GPU; the result replays it. Raises what capturing raises."""
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


def peak_memory(call: Call, on: torch.device | str) -> int | None:
    """Bytes that one call needs above what is there before it; None where nobody counts (the CPU).

    >>> peak_memory(lambda: None, "cpu")
    """
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
    """Bytes that can still be had on this device, or None where the system does not say."""
    if torch.device(on).type == "cuda":
        kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return int(torch.cuda.mem_get_info()[0]) + kept
    try:
        with open("/proc/meminfo") as lines:
            found = next((line for line in lines if line.startswith("MemAvailable:")), None)
        if found is not None:
            return int(found.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def interleave(
    calls: Mapping[str, Call],
    clock: Clock = wall,
    *,
    rounds: int = 20,
    seconds: float = 3.0,
    at_least: float = 0.05,
    seed: int = 0,
    tick: Tick | None = None,
) -> dict[str, Timing]:
    """Time all calls side by side.

    >>> found = interleave({"short": lambda: sum(range(10)), "long": lambda: sum(range(100_000))}, at_least=0.001)
    >>> found["short"].best < found["long"].best
    True

    A measurement repeats a call until it lasts `at_least` seconds. A contender gets as many rounds as fit into
    `seconds`, at least 2 and at most `rounds`; one that gets few has them spread evenly over the whole run.
    """
    once, wanted, times = {}, {}, {}
    for name, call in calls.items():
        once[name] = clock(call, 1)
        if once[name] < at_least:  # the first call may have been a slow one
            once[name] = clock(call, 3) / 3
        times[name] = max(1, round(at_least / max(once[name], 1e-7)))
        wanted[name] = min(max(2, rounds), max(2, int(seconds / max(times[name] * once[name], 1e-7))))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order = [name for together in schedule(wanted, seed) for name in together]
    with _no_collection():
        for done, name in enumerate(order):
            if tick is not None:
                tick(done, len(order))
            samples[name].append(clock(calls[name], times[name]) / times[name])
    return {name: Timing(min(s), statistics.median(s), len(s), times[name]) for name, s in samples.items()}


def schedule(wanted: Mapping[str, int], seed: int = 0) -> list[list[str]]:
    """Who runs in each round, in which order, so that everybody has the rounds they want, evenly spread.

    >>> [sorted(together) for together in schedule({"quick": 4, "slow": 2})]
    [['quick'], ['quick', 'slow'], ['quick'], ['quick', 'slow']]
    """
    chance = random.Random(seed)
    rounds = max(wanted.values(), default=0)
    plan = []
    for r in range(rounds):
        together = [name for name, n in wanted.items() if (r + 1) * n // rounds > r * n // rounds]
        chance.shuffle(together)
        plan.append(together)
    return plan


def ratios(timings: Mapping[str, Timing], ours: str) -> dict[str, Ratio]:
    """Everybody's time against the fastest and against ours.

    >>> found = ratios({"a": Timing(2.0, 2.0, 3, 1), "b": Timing(1.0, 1.0, 3, 1)}, ours="a")
    >>> found["b"]
    Ratio(to_fastest=1.0, to_ours=0.5)
    """
    if not timings:
        return {}
    fastest = min(t.counts for t in timings.values())
    mine = timings[ours].counts if ours in timings else None
    return {name: Ratio(t.counts / fastest, None if mine is None else t.counts / mine) for name, t in timings.items()}


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's garbage collector strikes at random, so it waits while we measure."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
