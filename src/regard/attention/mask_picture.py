"""The picture of a mask: a square for every key that a query may attend to."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def draw_mask(name: str, tile: Callable[[Tensor, Tensor, int], Tensor], sizes: tuple[int, int] | None) -> str:
    """At most 12 rows and 24 columns of the rule `tile(rows, cols, shift)`, of (T, S) = sizes, or 6 × 6."""
    T, S = sizes or (6, 6)
    rows, cols = min(T, 12), min(S, 24)
    allowed = tile(torch.arange(rows), torch.arange(cols), S - T)
    allowed = allowed.expand(*allowed.shape[:-2], rows, cols)
    batch = allowed.shape[0] if allowed.dim() > 2 else 1
    while allowed.dim() > 2:
        allowed = allowed[0] if allowed.shape[0] else allowed.new_zeros(allowed.shape[1:])
    lines = [f"{name}        ■ may attend   · hidden   (rows: queries, columns: keys)"]
    lines += ["  " + " ".join("■" if seen else "·" for seen in row) + (" …" if cols < S else "") for row in allowed]
    lines += ["  …"] * (rows < T)
    lines += [f"  (batch element 0 of {batch})"] * (batch > 1)
    return "\n".join(lines)
