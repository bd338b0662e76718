"""Numerics: the dtype that attention is computed in, and hidden keys that count for nothing even where they are NaN.

On a CPU without native support for 16-bit dtypes, a product takes many times as long as one in float32: there the
inputs, the weights and the results stay 16-bit, and the computation is in float32.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.support.arguments import autocast_dtype


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


def kernel_dtype(t: Tensor) -> torch.dtype:
    """The dtype in which SDPA takes this tensor: autocast's, where that is on and it is not float64."""
    return t.dtype if t.dtype is torch.float64 else autocast_dtype(t.device.type) or t.dtype


def softmax_over_visible(scaled: Tensor, allowed: Bool[Tensor, "_ _ _ _"]) -> Tensor:
    """Softmax over keys; a row that may attend to nothing gives 0 and sends gradient 0."""
    nothing = ~allowed.any(-1, keepdim=True)
    return scaled.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)


def undo_nan(context: Tensor, weights: Tensor, v: Tensor, allowed: Bool[Tensor, "_ _ _ _"]) -> Tensor:
    """weights @ v, where a value that a row may not see counts for nothing even if it is NaN or infinite."""
    if not may_branch_on(v) or v.isfinite().all():
        return context
    broken = ~v.isfinite()
    reached = allowed.expand(weights.shape).to(v.dtype) @ broken.to(v.dtype) > 0
    return torch.where(reached, context, weights @ v.masked_fill(broken, 0))


def clear_hidden(t: Tensor, allowed: Bool[Tensor, "_ _ _ _"]) -> Tensor:
    """Keys or values, with 0 in place of a NaN or infinity that no query may see: 0 × NaN would be NaN."""
    return t.masked_fill(hidden_from_all(allowed) & ~t.isfinite(), 0)


def hidden_from_all(allowed: Bool[Tensor, "_ _ _ _"]) -> Bool[Tensor, "_ 1 _ 1"]:
    """The keys that no query may see, (B, 1, S, 1)."""
    return ~allowed.any(-2, keepdim=True).any(1, keepdim=True).mT


def may_branch_on(t: Tensor) -> bool:
    """May Python read this tensor's values? Not in a graph, under a functorch transform, or where it is fake."""
    transformed = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return not transformed and not t.is_meta and type(t) is Tensor
