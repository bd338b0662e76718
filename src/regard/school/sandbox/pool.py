"""Run many submissions on several workers at a time."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from regard.school.sandbox.limits import RunLimits
from regard.school.sandbox.outcome import Outcome
from regard.school.sandbox.protection import Protection
from regard.school.sandbox.worker import Job, Worker

Progress = Callable[[int, int, Job, Outcome], None]  # how many are done, of how many; the last one
Item = TypeVar("Item")
Result = TypeVar("Result")
AnyWorker = TypeVar("AnyWorker")


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

    @contextmanager
    def opened(worker: Worker) -> Iterator[Callable[[Job], Outcome]]:
        with worker:
            yield worker.run

    return share_out(jobs, running, opened, Worker.stop, progress)


def share_out(
    items: Sequence[Item],
    workers: Sequence[AnyWorker],
    opened: Callable[[AnyWorker], AbstractContextManager[Callable[[Item], Result]]],
    stop: Callable[[AnyWorker], None],
    progress: Callable[[int, int, Item, Result], None] | None = None,
) -> list[Result]:
    """What the workers make of the items, in the order of the items; each worker has a thread.

    `opened` makes a worker ready in its thread, and closes it. `stop` ends what a worker does, from another thread.
    """
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Result | None, BaseException | None]] = queue.SimpleQueue()
    for index in range(len(items)):
        todo.put(index)
    stopped = threading.Event()

    def work(worker: AnyWorker) -> None:
        try:
            with opened(worker) as run:
                while not stopped.is_set():
                    try:
                        index = todo.get_nowait()
                    except queue.Empty:
                        return
                    done.put((index, run(items[index]), None))
        except BaseException as error:  # the caller's thread raises it
            done.put((-1, None, error))

    threads = [threading.Thread(target=work, args=[one], name="sandbox", daemon=True) for one in workers]
    results: dict[int, Result] = {}
    try:
        for thread in threads:
            thread.start()
        while len(results) < len(items):
            index, result, error = done.get()
            if error is not None:
                raise error
            results[index] = result  # type: ignore[assignment]
            if progress is not None:
                progress(len(results), len(items), items[index], results[index])
    finally:
        stopped.set()
        if len(results) < len(items):  # Ctrl-C, or an error
            for worker in workers:
                stop(worker)
        for thread in threads:
            thread.join()
    return [results[index] for index in range(len(items))]


def available_processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
