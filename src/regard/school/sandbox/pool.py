"""Run many submissions on several workers at a time."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence

from regard.school.sandbox.limits import RunLimits
from regard.school.sandbox.outcome import Outcome
from regard.school.sandbox.protection import Protection
from regard.school.sandbox.worker import Job, Worker

Progress = Callable[[int, int, Job, Outcome], None]  # how many are done, of how many; the last one


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
    count = min(workers or available_processors(), len(jobs))
    if workers is not None and workers < 1:
        raise ValueError(f"workers ({workers}) must be at least 1")
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(jobs)):
        todo.put(index)
    done: queue.SimpleQueue[tuple[int, Outcome | BaseException]] = queue.SimpleQueue()
    stop, running = threading.Event(), list[Worker]()

    def work() -> None:
        index = -1
        try:
            with Worker(limits, protection) as worker:
                running.append(worker)
                while not stop.is_set():
                    try:
                        index = todo.get_nowait()
                    except queue.Empty:
                        return
                    done.put((index, worker.run(jobs[index])))
        except BaseException as error:  # the caller's thread raises it
            done.put((index, error))

    threads = [threading.Thread(target=work, name=f"sandbox-{number}", daemon=True) for number in range(count)]
    outcomes: dict[int, Outcome] = {}
    try:
        for thread in threads:
            thread.start()
        while len(outcomes) < len(jobs):
            index, outcome = done.get()
            if isinstance(outcome, BaseException):
                raise outcome
            outcomes[index] = outcome
            if progress is not None:
                progress(len(outcomes), len(jobs), jobs[index], outcome)
    finally:
        stop.set()
        if len(outcomes) < len(jobs):  # Ctrl-C, or an error
            for worker in list(running):
                worker.stop()
        for thread in threads:
            thread.join()
    return [outcomes[index] for index in range(len(jobs))]


def available_processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
