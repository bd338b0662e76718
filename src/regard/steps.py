"""Steps: a name for every tensor of a computation.

`step("scores", tensor)` returns the tensor unchanged. Inside `regard.trace` a collector is called with it first;
elsewhere nothing is kept and nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from torch import Tensor

from regard.support.scoped import Scoped

# collector(name, value, operation, why)
Collector = Callable[[str, Tensor, str, str], None]
_collector = Scoped[Collector]("regard_step_collector")


def step(name: str, value: Tensor, operation: str = "", why: str = "") -> Tensor:
    """Name a tensor and return it unchanged; a trace in progress records it.

    >>> import torch
    >>> step("scores", torch.tensor([1.0, 2.0]))
    tensor([1., 2.])

    operation: shown by the trace instead of the torch functions that made the tensor. Give it only where what runs is a
        faster or safer form of what it means.
    why: the reason shown beside it; the steps of attention have one by default.
    """
    if _collector.open_blocks and (collector := _collector.get()) is not None:
        collector(name, value, operation, why)
    return value


def tracing() -> bool:
    """Is a collector active in this thread?"""
    return _collector.get() is not None


def collecting(collector: Collector) -> AbstractContextManager[None]:
    """Inside the block, call the collector for every step of this thread or asyncio task; the innermost wins."""
    return _collector.set(collector)
