"""Run many submissions on several workers at a time."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from regard.school.sandbox.limits import RunLimits
from regard.school.sandbox.outcome import Outcome
from regard.school.sandbox.protection import Protection
from regard.school.sandbox.worker import Job, Worker

Progress = Callable[[int, int, Job, Outcome], None]  # how many are done, of how many; the last one
Item = TypeVar("Item")
Result = TypeVar("Result")


def run_all(
    jobs: Sequence[Job],
    workers: int | None = None,
    *,
    limits: RunLimits | None = None,
    protection: Protection | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """The outcome of every job, in the order of the jobs.

    As many workers as the machine has processors, unless `workers` says otherwise. `progress` is called in this thread
    whenever a job ends. What a submission does to its own process, or to its worker, is no other job's loss.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers ({workers}) must be at least 1")
    running = [Worker(limits, protection) for _ in range(min(workers or available_processors(), len(jobs)))]
    return share_out(jobs, running, Worker.run, progress)


def share_out(
    items: Sequence[Item],
    workers: Sequence[Any],
    run: Callable[[Any, Item], Result],
    progress: Callable[[int, int, Item, Result], None] | None = None,
) -> list[Result]:
    """What the workers make of the items, in the order of the items; each runs one item at a time, in a thread.

    A worker has `stop`, which ends what it does, from another thread, and `close`.
    """
    idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def work(item: Item) -> Result:
        worker = idle.get()
        try:
            return run(worker, item)
        finally:
            idle.put(worker)

    pool = ThreadPoolExecutor(max(len(workers), 1))
    try:
        futures = {pool.submit(work, item): item for item in items}
        for done, future in enumerate(as_completed(futures), 1):
            result = future.result()
            if progress is not None:
                progress(done, len(items), futures[future], result)
    except BaseException:  # Ctrl-C, or an error
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.stop()
        raise
    finally:
        pool.shutdown()
        for worker in workers:
            worker.close()
    return [future.result() for future in futures]


def available_processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
