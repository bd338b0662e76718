"""How many threads torch uses on a CPU: fewer for a while, or each for items of its own.

torch splits every operation over its threads, which meet again at its end. Where other programs want the same cores,
one that was interrupted lets the others wait for a time slice of the scheduler, milliseconds, at each operation.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch

Item = TypeVar("Item")

_lock = threading.Lock()
_inside = threading.local()  # .depth: how many limits this thread has already
_limits: list[int] = []  # of all threads that have one now
_usual = 1  # the number of threads before the first of them began


@contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads within the block; afterwards as many as before.

    A thread that first calls torch meanwhile begins with `count`, and keeps it: torch has a number for each.

    >>> before = torch.get_num_threads()
    >>> with limit_threads(1):
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    global _usual
    if not torch.backends.openmp.is_available():  # other backends cannot change the number once they run
        yield
        return
    with _lock:
        before, depth = torch.get_num_threads(), getattr(_inside, "depth", 0)
        if not _limits:
            _usual = before
        elif depth == 0 and before in _limits:  # torch keeps a number for each thread; a new one begins with the latest
            before = _usual
        _limits.append(count)
        _inside.depth = depth + 1
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _lock:
            _limits.remove(count)
            _inside.depth = depth
            torch.set_num_threads(before)


def run_side_by_side(work: Callable[[Item], object], items: Sequence[Item], available: int | None = None) -> None:
    """Call work(item) for every item, in as many threads at once as torch uses for one operation, or as are available.

    >>> squares = torch.zeros(3)
    >>> run_side_by_side(lambda i: squares[i].fill_(i * i), range(3))
    >>> squares
    tensor([0., 1., 4.])

    The threads meet once, at the end, and what one writes stays in the cache of its core. Where there are fewer items
    than threads, the operations of each item are split over the remaining ones. Gradient mode and inference mode are
    those of the caller; autocast, and modes that intercept torch functions, are not active in the other threads. An
    error ends the work after the items that have begun.
    """
    available = available or torch.get_num_threads()
    threads = min(available, len(items))
    if threads < 2 or not torch.backends.openmp.is_available():
        with limit_threads(available):
            for item in items:
                work(item)
        return
    todo, each = iter(list(items)), available // threads  # of an iterator of a list, each item is taken by one thread
    has_grad, is_inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def run() -> None:  # a new thread has the number of threads that was set last
        with torch.inference_mode(is_inference), torch.set_grad_enabled(has_grad):
            try:
                for item in todo:
                    work(item)
            except BaseException:
                deque(todo, maxlen=0)  # so that the others end, too
                raise

    with limit_threads(each), ThreadPoolExecutor(threads - 1) as pool:
        others = []
        with suppress(RuntimeError):  # no thread can be started while the interpreter ends; the caller's does all
            for _ in range(threads - 1):
                others.append(pool.submit(run))
        run()
        for other in others:
            other.result()
