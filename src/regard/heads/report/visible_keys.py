"""Which cells of a record's maps are visible: single keys, or cells of a coarse map."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.heads.calls.visibility import row_tiles, visible_tile
from regard.heads.measure import on_demand
from regard.heads.report.record import Record


def visible_keys(record: Record, rows: Int[Tensor, "R"], text: int | None = None) -> Bool[Tensor, "B H R S"]:
    """Which keys these queries may see; none in rows that do not count. text: only this text of the batch."""
    B, H, _, S = record.sizes
    B, chosen = (B, slice(None)) if text is None else (1, slice(text, text + 1))
    rows = rows.cpu()
    result = torch.zeros(B, H, len(rows), S, dtype=torch.bool)
    for (start, end, offset), (call, lse) in zip(record.spans(), record.calls(), strict=True):
        mine = ((rows >= start) & (rows < end)).nonzero()[:, 0]
        local = (rows[mine] - start).to(call.device)
        visible = visible_tile(call, local)
        visible = visible if visible.shape[0] == 1 else visible[chosen]
        tile = visible & on_demand.counted(call, lse)[chosen, :, local, None]
        result[:, :, mine, offset : offset + call.sizes[3]] = tile.cpu()
    return result


def visible_cells(record: Record, n: int) -> Bool[Tensor, "B H rows cols"]:
    """May any query of a cell see any key of it? The cells are those of map(n)."""
    B, H, T, S = record.sizes
    record.need(f"visible_cells({n})")
    seen = torch.zeros(B, H, min(n, T), min(n, S))
    for (start, end, offset), (call, lse) in zip(record.spans(), record.calls(), strict=True):
        lines = on_demand.cells(torch.arange(start, end), T, seen.shape[2])
        columns = on_demand.cells(torch.arange(offset, offset + call.sizes[3]), S, seen.shape[3])
        counts = on_demand.counted(call, lse).cpu()
        for rows in row_tiles(call):
            tile = visible_tile(call, rows).cpu().float()
            narrow = tile.new_zeros(*tile.shape[:3], seen.shape[3]).index_add_(3, columns, tile)
            rows = rows.cpu()
            seen.index_add_(2, lines[rows], narrow.expand(B, H, -1, -1) * counts[:, :, rows, None])
    return seen > 0


def hides_future(record: Record) -> bool:
    """Is this one call with a causal mask? Read from the mask, without looking at its cells."""
    _, _, T, S = record.sizes
    return T == S and len(record.steps) == 1 and record.steps[0].call.attention.mask.parts().causal
