"""Attention weights as a table of numbers: a row for each query, a column for each key."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from regard.show.table import shorten, text_table

_WIDEST = 10  # characters of a key's name


def weights_table(
    weights: Float[Tensor, "T S"], rows: Sequence[str], cols: Sequence[str], width: int = 80, digits: int = 2
) -> str:
    """How much each query (row) attends to each key (column).

    >>> import torch
    >>> print(weights_table(torch.tensor([[1.0, 0.0], [0.25, 0.75]]), ["The", "cat"], ["The", "cat"]))
            The   cat
      The  1.00     ·
      cat  0.25  0.75

    Columns that do not fit the width are left out, and the last line says how many.
    """
    first = max((len(name) for name in rows), default=0)
    cell = max([digits + 2, *(min(len(name), _WIDEST) for name in cols)])
    fit = max(1, min(len(cols), (width - 4 - first) // (cell + 2)))
    heading = ["", *(shorten(name, cell).rjust(cell) for name in cols[:fit])]
    lines = [
        [name, *(f"{weight:.{digits}f}" if weight else "·" for weight in row[:fit])]
        for name, row in zip(rows, weights.tolist(), strict=True)
    ]
    table = text_table(heading, lines, None, words=1)
    return table if fit >= len(cols) else f"{table}\n  … and {len(cols) - fit} more keys"
