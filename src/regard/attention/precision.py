"""Which dtype attention is computed in, where that is not the dtype of its inputs.

On a CPU without native support for 16-bit dtypes, a product takes many times as long as one in float32: there the
inputs, the weights and the results stay 16-bit, and the computation is in float32.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def _without_native_support() -> frozenset[torch.dtype]:
    if not torch.backends.mkldnn.is_available():  # as on Apple's chips, where torch has no way to ask
        return frozenset()
    supported = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    return frozenset(dtype for dtype, name in supported.items() if not getattr(torch.ops.mkldnn, name)())


EMULATED = _without_native_support()  # 16-bit dtypes without native support on this CPU


def at_least_float32(t: Tensor) -> Tensor:
    """A 16-bit tensor in float32; others unchanged."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def is_emulated(t: Tensor) -> bool:
    """Is this a 16-bit tensor on a CPU that has no native support for its dtype?"""
    return t.dtype in EMULATED and t.device.type == "cpu"


def in_float32_if_emulated(t: Tensor) -> Tensor:
    """A tensor in float32 where this CPU has no native support for its dtype; others unchanged."""
    return t.float() if is_emulated(t) else t


def without_autocast(t: Tensor) -> AbstractContextManager[Any]:
    """Autocast off, for what must be computed in the dtype that it has."""
    kind = t.device.type  # torch.autocast takes as long as a small operation, so it is called only where it is needed
    return torch.autocast(kind, enabled=False) if kind != "meta" and torch.is_autocast_enabled(kind) else nullcontext()
