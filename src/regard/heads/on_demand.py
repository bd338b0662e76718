"""What is computed from queries and keys on demand: exact weights, the largest ones, maps, histograms.

All of it goes over tiles of exact weights; T × S is never in memory. lse: (B, H, T), as `measure` gives it.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from regard.attention.kernels import exact_weights as tiles
from regard.attention.kernels.exact_weights import Tile
from regard.heads.call import WatchedCall


def weights(call: WatchedCall, lse: Tensor, head: int, rows: Tensor, cols: Tensor, text: int | None = None) -> Tensor:
    """The exact weights of these rows and columns, (B, R, C), of one head; rows that do not count are 0.

    text: only this text of the batch, (1, R, C).
    """
    texts = range(call.sizes[0]) if text is None else [text]
    rows, cols = rows.to(call.device), cols.to(call.device)
    counts = counted(call, lse)
    result = torch.zeros(len(texts), len(rows), len(cols), device=call.device, dtype=result_dtype(call))
    if not result.numel():
        return result
    low, high = int(cols.min()), int(cols.max()) + 1
    size = 256 if call.device.type == "cpu" else 4096
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        for first, last in _consecutive(part):
            for i, b in enumerate(texts):
                tile = Tile(b, head, int(part[first]), int(part[last - 1]) + 1, low, high)
                p = tiles.weights(call, tile, lse)[:, cols - low]
                p = p.masked_fill(~counts[b, head, tile.first : tile.last, None], 0)
                result[i, start + first : start + last] = p
    return result


def top(call: WatchedCall, lse: Tensor, head: int, n: int) -> tuple[Tensor, Tensor]:
    """Keys (B, T, n) and weights (B, T, n) of each query's n largest; key −1 and weight 0 past the visible ones."""
    B, _, T, _ = call.sizes
    counts = counted(call, lse)
    keys = torch.full((B, T, n), -1, device=call.device)
    largest = torch.zeros(B, T, n, device=call.device, dtype=result_dtype(call))
    for tile in tiles.tiles(call, head):
        p = tiles.weights(call, tile, lse)
        size = min(n, p.shape[1])
        if not size:
            continue
        best, place = p.topk(size, dim=-1)
        there = (best > 0) & counts[tile.b, head, tile.first : tile.last, None]
        here = (tile.b, slice(tile.first, tile.last), slice(0, size))
        largest[here] = best.masked_fill(~there, 0)
        keys[here] = (place + tile.low).masked_fill(~there, -1)
    return keys, largest


def pooled(call: WatchedCall, lse: Tensor, head: int, n: int) -> Tensor:
    """The mean weight in each cell of a grid over T × S: (B, min(n, T), min(n, S)); NaN where a cell has no row."""
    B, _, T, S = call.sizes
    down, across = min(n, T), min(n, S)
    counts = counted(call, lse)[:, head]
    lines = cells(torch.arange(T, device=call.device), T, down)
    columns = cells(torch.arange(S, device=call.device), S, across)
    width = torch.bincount(columns, minlength=across)
    total = torch.zeros(B, down, across, device=call.device, dtype=torch.float64)
    rows = torch.zeros(B, down, device=call.device, dtype=torch.float64)
    for tile in tiles.tiles(call, head):
        b, real = tile.b, counts[tile.b, tile.first : tile.last]
        where = lines[tile.first : tile.last]
        rows[b].index_add_(0, where, real.double())
        if tile.high > tile.low:
            p = tiles.weights(call, tile, lse).masked_fill(~real[:, None], 0)
            sums = p.new_zeros(p.shape[0], across).index_add_(1, columns[tile.low : tile.high], p)
            total[b].index_add_(0, where, sums.double())
    mean = total / (rows[:, :, None] * width)
    return mean.masked_fill(rows[:, :, None] == 0, torch.nan).to(result_dtype(call))


def histogram(call: WatchedCall, lse: Tensor, head: int) -> Tensor:
    """(B, T, bins): weight at distance 0, 1, 2–3, 4–7, 8–15, …; NaN in rows that do not count."""
    B, _, T, S = call.sizes
    size = 1 + (max(S, T) - 1).bit_length() if max(S, T) else 1
    result = torch.zeros(B, T, size, device=call.device, dtype=result_dtype(call))
    if call.across:
        return result.fill_(torch.nan)
    for tile in tiles.tiles(call, head):
        if tile.high <= tile.low:
            continue
        at = torch.arange(tile.first, tile.last, device=call.device)[:, None] + call.shift
        apart = (at - torch.arange(tile.low, tile.high, device=call.device)).abs()
        bins = torch.frexp(apart.double())[1].long()  # 0 → 0, 1 → 1, 2–3 → 2, 4–7 → 3
        result[tile.b, tile.first : tile.last].scatter_add_(1, bins, tiles.weights(call, tile, lse))
    return result.masked_fill(~counted(call, lse)[:, head, :, None], torch.nan)


def carry(call: WatchedCall, lse: Tensor, amounts: Tensor) -> Tensor:
    """amounts (B, n, T) @ the mean of all heads' weights: (B, n, S). A rollout is made of this."""
    B, H, _, S = call.sizes
    counts = counted(call, lse)
    result = torch.zeros(B, amounts.shape[1], S, device=call.device, dtype=torch.float64)
    for tile in tiles.tiles(call):
        if tile.high > tile.low:
            b, rows = tile.b, slice(tile.first, tile.last)
            p = tiles.weights(call, tile, lse).masked_fill(~counts[b, tile.h, rows, None], 0)
            result[b, :, tile.low : tile.high] += (amounts[b, :, rows].to(p.dtype) @ p).double()
    return (result / H).to(result_dtype(call))


def counted(call: WatchedCall, lse: Tensor) -> Tensor:
    """(B, H, T) bool: the queries that are real tokens and may see something."""
    if call.weights is not None:
        rows = torch.stack([(call.weights[:, h] > 0).any(-1) for h in range(call.sizes[1])], dim=1)
    else:
        rows = lse.isfinite()
    return rows if call.real is None else rows & call.real[:, None].to(rows.device)


def result_dtype(call: WatchedCall) -> torch.dtype:
    """float64 for a float64 model, else float32."""
    source = call.q if call.weights is None else call.weights
    return torch.float64 if source is not None and source.dtype is torch.float64 else torch.float32


def cells(index: Tensor, size: int, n: int) -> Tensor:
    """The cell of each row or column, of n cells; cell c covers [c · size // n, (c + 1) · size // n).

    >>> cells(torch.arange(7), size=7, n=3)
    tensor([0, 0, 1, 1, 2, 2, 2])
    """
    edges = torch.arange(1, n + 1, device=index.device) * size // max(n, 1)
    return torch.bucketize(index, edges, right=True)


def _consecutive(rows: Tensor) -> list[tuple[int, int]]:
    """Runs of consecutive rows, as [first, last) indices of `rows`."""
    breaks = (torch.nonzero(rows[1:] != rows[:-1] + 1)[:, 0] + 1).tolist()
    return list(pairwise([0, *breaks, len(rows)])) if len(rows) else []
