"""One thread for small work on a CPU.

A product over two threads waits for the slower one. On an idle machine that costs microseconds; where other programs
want the same cores, it costs a time slice of the scheduler, milliseconds, at each of the fifty products of a token. A
small model gains little from a second thread and may lose nearly everything by it, so it gets one. Which model is
small depends on sizes alone and never on the load: the number of threads can change the last digits of a score.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from regard.support.torch_threads import limit_threads

SMALL_STEP = 1 << 24  # weights × rows in a decoding step, which is limited by memory: about 5 ms for one thread
SMALL_PROMPT = 1 << 30  # weights × tokens of a prompt, which is limited by arithmetic: about 50 ms for one thread


def threads_for(work: int, small: int) -> AbstractContextManager[None]:
    """Let torch use one thread within the block if there is less work than `small`; afterwards as many as before.

    >>> import torch
    >>> with threads_for(work=5, small=7):
    ...     torch.get_num_threads()
    1
    """
    return limit_threads(1) if work < small else nullcontext()
