"""Code that runs while a model is watched and is not its forward: our own, and a recomputation in backward."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

if TYPE_CHECKING:
    from regard.heads.intercept.interceptor import Interceptor


class OwnComputation:
    """What is computed inside the block is not the model's, nor in its precision.

    A class, as a generator with @contextmanager takes three times as long, for every attention call.
    """

    def __init__(self, interceptor: Interceptor, device_type: str) -> None:
        self.interceptor, self.before = interceptor, interceptor.in_callback
        autocast = torch.is_autocast_enabled(device_type)
        self.autocast: Any = torch.autocast(device_type, enabled=False) if autocast else nullcontext()

    def __enter__(self) -> None:
        self.interceptor.in_callback = True
        self.autocast.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.interceptor.in_callback = self.before
        self.autocast.__exit__(kind, error, trace)


def is_recomputed() -> bool:
    """Does the model run inside torch.utils.checkpoint, which will compute it again in backward?"""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == torch.utils.checkpoint.__file__:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def in_backward() -> bool:
    """Does this run in backward?"""
    return torch._C._current_graph_task_id() != -1
