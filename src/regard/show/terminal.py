"""Weights and shapes as plain aligned text, 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

_BARS = " ▁▂▃▄▅▆▇█"


def weights_table(
    weights: Float[Tensor, "T S"], rows: Sequence[str], cols: Sequence[str], width: int = 80, digits: int = 2
) -> str:
    """Who looks where: a row a query, a column a key, the weight as a number.

    >>> import torch
    >>> print(weights_table(torch.tensor([[1.0, 0.0], [0.25, 0.75]]), ["The", "cat"], ["The", "cat"]))
            The   cat
      The  1.00     ·
      cat  0.25  0.75

    Columns that do not fit the width are left out, and the last line says how many.
    """
    first = max((len(name) for name in rows), default=0)
    cell = max([digits + 2, *(min(len(name), 10) for name in cols)])
    fit = max(1, min(len(cols), (width - 4 - first) // (cell + 2)))
    lines = ["  " + " " * first + "".join("  " + _short(name, cell).rjust(cell) for name in cols[:fit])]
    for name, row in zip(rows, weights.tolist(), strict=True):
        cells = "".join("  " + (f"{w:.{digits}f}" if w else "·").rjust(cell) for w in row[:fit])
        lines.append("  " + name.ljust(first) + cells)
    if fit < len(cols):
        lines.append(f"  … and {len(cols) - fit} more keys")
    return "\n".join(lines)


def bars(weights: Float[Tensor, "S"]) -> str:
    """One row of weights as bars, the largest full height.

    >>> import torch
    >>> bars(torch.tensor([0.1, 0.2, 0.4, 0.0]))
    '▂▄█ '
    """
    top = float(weights.max()) if weights.numel() else 0.0
    return "".join(_BARS[round(8 * float(w) / top)] if top > 0 else " " for w in weights)


def _short(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"
