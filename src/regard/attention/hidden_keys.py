"""What a mask hides counts for nothing: a row that sees no key gives 0, and a hidden value may be NaN or infinite."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor


def softmax_over_visible(scaled: Tensor, allowed: Bool[Tensor, "_ _ _ _"]) -> Tensor:
    """Softmax over keys; a row that may attend to nothing gives 0 and sends gradient 0."""
    nothing = ~allowed.any(-1, keepdim=True)
    return scaled.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)


def undo_hidden_nan(context: Tensor, weights: Tensor, v: Tensor, allowed: Bool[Tensor, "_ _ _ _"]) -> Tensor:
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
    return not (
        t.is_meta
        or type(t) is not Tensor
        or torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
    )
