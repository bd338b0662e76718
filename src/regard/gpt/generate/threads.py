"""One thread for small work on a CPU.

A product over two threads waits for the slower one. On an idle machine that costs microseconds; where other programs
want the same cores, it costs a time slice of the scheduler, milliseconds, at each of the fifty products of a token. A
small model gains little from a second thread and may lose nearly everything by it, so it gets one. Which model is
small depends on sizes alone and never on the load: the number of threads can change the last digits of a score.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL_STEP = 1 << 24  # weights × rows in a decoding step, which is limited by memory: about 5 ms for one thread
SMALL_PROMPT = 1 << 30  # weights × tokens of a prompt, which is limited by arithmetic: about 50 ms for one thread

_lock = threading.Lock()
_inside = threading.local()  # .here: does this thread run small work already?
_running = 0  # threads that run small work
_usual = 1  # the number of threads before the first of them began


@contextmanager
def threads_for(work: int, small: int) -> Iterator[None]:
    """Let torch use one thread within the block if there is less work than `small`; afterwards as many as before.

    >>> before = torch.get_num_threads()
    >>> with threads_for(work=5, small=7):
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    # Other backends than OpenMP cannot change the number of threads once they run.
    if work >= small or getattr(_inside, "here", False) or not torch.backends.openmp.is_available():
        yield
        return
    before = _begin()
    try:
        yield
    finally:
        _end(before)


def _begin() -> int:
    """Set one thread; returns how many to restore."""
    global _running, _usual
    with _lock:
        before = torch.get_num_threads()
        if _running == 0:
            _usual = before
        elif before == 1:  # torch keeps a number for each thread, and one that starts now begins with ours
            before = _usual
        _running += 1
        _inside.here = True
        torch.set_num_threads(1)
        return before


def _end(before: int) -> None:
    global _running
    with _lock:
        _running -= 1
        _inside.here = False
        torch.set_num_threads(before)
