"""The cells of maps: weights as arrays in which what the mask hides is masked, exact or pooled.

A pooled cell is the share of its queries' weight that is on its keys, as on the page: rows still add up to 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.heads.measure.on_demand import cells
from regard.heads.report.views import Head, Index, SeenLayer, numbers_of

LONGEST = 512  # queries or keys that are drawn one by one


@dataclass(frozen=True)
class Cells:
    """What a map shows."""

    values: Any  # a masked array, rows × columns
    rows: list[int]  # the query of each row, or the first of several
    cols: list[int]
    pooled: bool
    queries: int  # of the text
    keys: int


def head_cells(head: Head, text: int, rows: Index, cols: Index) -> Cells:
    """The weights of these queries and keys; of a long text all of them, pooled."""
    head.record.need("plot()")
    _, _, T, S = head.record.sizes
    chosen = numbers_of(head.record, rows, "row", text).cpu()
    keys = numbers_of(head.record, cols, "column", text).cpu()
    down, across = len(chosen), len(keys)
    if not down or not across:
        raise ValueError(f"a map needs a query and a key at least; {down} queries and {across} keys are chosen")
    if max(down, across) > LONGEST:
        if rows is not None or cols is not None:
            raise ValueError(
                f"at most {LONGEST} rows and columns are drawn one by one, and {down} rows and {across} "
                f"columns are chosen; choose fewer with rows=slice(0, {LONGEST}), cols=…, or neither for a pooled map"
            )
        return _pooled(head, head.visible_cells(LONGEST)[text].numpy(), text, LONGEST)
    weights = head.weights(chosen, keys, text)[0].float().cpu().numpy()
    hidden = ~head.visible(chosen)[text][:, keys].cpu().numpy()
    return Cells(np.ma.array(weights, mask=hidden), chosen.tolist(), keys.tolist(), False, T, S)


def layer_cells(layer: SeenLayer, text: int, most: int) -> list[Cells]:
    """A small map of each head, of at most so many rows and columns."""
    layer.record.need("plot()")
    visible = layer.visible_cells(most)[text].numpy()
    return [_pooled(head, visible[head.head], text, most) for head in layer]


def no_cells(rows: int, cols: int) -> Any:
    """A grid in which every cell is masked."""
    return np.ma.array(np.zeros((rows, cols)), mask=True)


def unmasked_cells(values: Any) -> list[tuple[int, int]]:
    """(row, column) of every cell that is not masked."""
    return [(int(row), int(col)) for row, col in np.argwhere(~np.ma.getmaskarray(values))]


def _pooled(head: Head, visible: Any, text: int, most: int) -> Cells:
    _, _, T, S = head.record.sizes
    keys = np.bincount(_cell_of(S, most), minlength=min(S, most))
    share = head.map(most)[text].float().cpu().numpy() * keys
    pooled = max(T, S) > most
    rows, cols = (np.unique(_cell_of(size, most), return_index=True)[1].tolist() for size in (T, S))
    return Cells(np.ma.array(share, mask=~visible), rows, cols, pooled, T, S)


def _cell_of(size: int, most: int) -> Any:
    return cells(torch.arange(size), size, min(size, most)).numpy()
