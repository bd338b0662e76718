"""What is computed from queries and keys on demand: exact weights, the largest ones, maps, histograms.

All of it goes over tiles of exact weights; T × S is never in memory. lse: (B, H, T), as `measure` gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, pairwise

import torch
from torch import Tensor

from regard.attention.masks import EVERYTHING, to_four_axes
from regard.attention.numerics import without_autocast
from regard.heads.calls.call import OwnWeights, WatchedCall
from regard.heads.calls.visibility import sees_a_key
from regard.heads.measure.kernels import exact_weights as tiles
from regard.heads.measure.kernels.exact_weights import HeadWeights, Tile

_GATHERED = 1 << 25  # numbers of keys that are gathered at a time
TOP = 8  # how many keys a query keeps where "top" is collected
MAP = 128  # cells of a side where "map" is collected


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
    every = len(cols) == high - low and bool((cols[1:] > cols[:-1]).all())  # then nothing is to be chosen
    size = 256 if call.device.type == "cpu" else 4096
    breaks = (torch.nonzero(rows[1:] != rows[:-1] + 1)[:, 0] + 1).tolist()
    runs = list(pairwise(sorted({*range(0, len(rows), size), *breaks, len(rows)})))  # of consecutive rows
    for i, b in enumerate(texts):
        one = HeadWeights(call.attention, b, slice(head, head + 1), lse, counts)
        for first, last in runs:
            p = one.tile(Tile(b, head, int(rows[first]), int(rows[last - 1]) + 1, low, high))[0]
            result[i, first:last] = p if every else p[:, cols - low]
    return result


def weights_of_rows(call: WatchedCall, lse: Tensor, texts: Tensor, heads: Tensor, rows: Tensor) -> Tensor:
    """The exact weights of single rows that count, (n, S), of any texts and heads: (n,) numbers each."""
    attention, S = call.attention, call.sizes[3]
    if isinstance(attention, OwnWeights):
        return attention.weights[texts, heads, rows].to(result_dtype(call))
    shared, wide = attention.q.shape[1] // attention.k.shape[1], result_dtype(call)
    q = attention.q[texts, heads, rows].to(wide) * attention.scale  # (n, D)
    result = torch.empty(len(rows), S, dtype=wide, device=call.device)
    cols = torch.arange(S, device=call.device)
    for some in torch.arange(len(rows), device=call.device).split(max(1, _GATHERED // max(S * q.shape[1], 1))):
        b, h, t = texts[some], heads[some], rows[some]
        with without_autocast(q):
            x = torch.bmm(attention.k[b, h // shared].to(wide), q[some, :, None])[..., 0]  # (n, S)
        if attention.bias is not None:
            x += _entries(attention.bias, b, h, t).to(wide)
        if attention.alibi is not None:
            x -= attention.alibi.to(wide)[h, None] * (t[:, None] + call.shift - cols).abs()
        if attention.mask is not EVERYTHING:
            seen = attention.mask.tile(t, cols, call.shift)  # all texts and heads of a mask that differs between them
            x.masked_fill_(~_entries(seen, b, h, torch.arange(len(t), device=t.device)), -torch.inf)
        result[some] = (x - lse[b, h, t, None]).exp_()
    return result


def _entries(one: Tensor, texts: Tensor, heads: Tensor, rows: Tensor) -> Tensor:
    """(n, S): the lines of a tensor (B or 1, H or 1, T or 1, S or 1) that belong to these rows."""
    one = to_four_axes(one)
    places = [
        index if size > 1 else torch.zeros_like(index)
        for index, size in zip((texts, heads, rows), one.shape, strict=False)
    ]
    return one[tuple(places)]


def _tiles(call: WatchedCall, lse: Tensor, head: int | None = None) -> Iterator[tuple[Tile, Tensor]]:
    """Every tile of a head, or of all heads, and its weights; 0 in rows that do not count."""
    counts = counted(call, lse)
    for (b, h), group in groupby(tiles.tiles(call.attention, head), lambda tile: (tile.b, tile.h)):
        weights_of_head = HeadWeights(call.attention, b, slice(h, h + 1), lse, counts)
        for tile in group:
            if tile.high > tile.low:
                yield tile, weights_of_head.tile(tile)[0]


def top(call: WatchedCall, lse: Tensor, head: int, n: int) -> tuple[Tensor, Tensor]:
    """Keys (B, T, n) and weights (B, T, n) of each query's n largest; key −1 and weight 0 past the visible ones."""
    B, _, T, _ = call.sizes
    keys = torch.full((B, T, n), -1, device=call.device)
    largest = torch.zeros(B, T, n, device=call.device, dtype=result_dtype(call))
    for tile, p in _tiles(call, lse, head):
        size = min(n, p.shape[1])
        best, place = p.topk(size, dim=-1)
        here = (tile.b, slice(tile.first, tile.last), slice(0, size))
        largest[here] = best
        keys[here] = (place + tile.low).masked_fill(best <= 0, -1)
    return keys, largest


def pooled(call: WatchedCall, lse: Tensor, head: int, n: int) -> Tensor:
    """The mean weight in each cell of a grid over T × S: (B, min(n, T), min(n, S)); NaN where a cell has no row."""
    B, _, T, S = call.sizes
    down, across = min(n, T), min(n, S)
    lines = cells(torch.arange(T, device=call.device), T, down)
    edges = torch.arange(across + 1, device=call.device) * S // max(across, 1)
    total = torch.zeros(B, down, across, device=call.device, dtype=torch.float64)
    for tile, p in _tiles(call, lse, head):
        # Rows first: that leaves few of them. Then each cell is a difference of running sums.
        where = lines[tile.first : tile.last] - lines[tile.first]
        sums = p.new_zeros(int(where[-1]) + 1, p.shape[1]).index_add_(0, where, p).double()
        running = torch.nn.functional.pad(sums.cumsum(-1), (1, 0))
        ends = running[:, edges.clamp(tile.low, tile.high) - tile.low]
        total[tile.b].narrow(0, int(lines[tile.first]), len(sums)).add_(ends.diff(dim=-1))
    counts = counted(call, lse)[:, head].double()
    rows = counts.new_zeros(B, down).index_add_(1, lines, counts)
    mean = total / (rows[:, :, None] * edges.diff())
    return mean.masked_fill(rows[:, :, None] == 0, torch.nan).to(result_dtype(call))


def histogram(call: WatchedCall, lse: Tensor, head: int) -> Tensor:
    """(B, T, bins): weight at distance 0, 1, 2–3, 4–7, 8–15, …; NaN in rows that do not count."""
    B, _, T, S = call.sizes
    size = 1 + (max(S, T) - 1).bit_length() if max(S, T) else 1
    result = torch.zeros(B, T, size, device=call.device, dtype=result_dtype(call))
    if not call.has_positions:
        return result.fill_(torch.nan)
    for tile, p in _tiles(call, lse, head):
        at = torch.arange(tile.first, tile.last, device=call.device)[:, None] + call.shift
        apart = (at - torch.arange(tile.low, tile.high, device=call.device)).abs()
        bins = torch.frexp(apart.double())[1].long()  # 0 → 0, 1 → 1, 2–3 → 2, 4–7 → 3
        result[tile.b, tile.first : tile.last].scatter_add_(1, bins, p)
    return result.masked_fill(~counted(call, lse)[:, head, :, None], torch.nan)


def with_equal_bins(parts: list[Tensor]) -> list[Tensor]:
    """Histograms of shorter steps get the bins they could not reach, with 0 in them; NaN in rows that do not count."""
    bins = max(part.shape[-1] for part in parts)
    return [torch.cat([part, 0 * part[..., :1].expand(*part.shape[:-1], bins - part.shape[-1])], -1) for part in parts]


def carry(call: WatchedCall, lse: Tensor, amounts: Tensor) -> Tensor:
    """amounts (B, n, T) @ the mean of all heads' weights: (B, n, S). A rollout is made of this."""
    B, H, _, S = call.sizes
    result = torch.zeros(B, amounts.shape[1], S, device=call.device, dtype=torch.float64)
    for tile, p in _tiles(call, lse):
        part = amounts[tile.b, :, tile.first : tile.last].to(p.dtype) @ p
        result[tile.b, :, tile.low : tile.high] += part.double()
    return (result / H).to(result_dtype(call))


# Statistics that are collected in this way: the tensors of one head, in the order of Statistic.stored.
BY_HEAD: dict[str, Callable[[WatchedCall, Tensor, int], tuple[Tensor, ...]]] = {
    "histogram": lambda call, lse, head: (histogram(call, lse, head),),
    "map": lambda call, lse, head: (pooled(call, lse, head, MAP),),
    "top": lambda call, lse, head: top(call, lse, head, TOP),
}


def counted(call: WatchedCall, lse: Tensor) -> Tensor:
    """(B, H, T) bool: the queries that are real tokens and may see something."""
    attention, real = call.attention, call.origin.real
    if isinstance(attention, OwnWeights):
        rows = torch.stack([(attention.weights[:, h] > 0).any(-1) for h in range(call.sizes[1])], dim=1)
        if attention.mask is not EVERYTHING:  # where all scores are the lowest number, weights are equal, and none is 0
            rows = rows & sees_a_key(call)
    else:
        rows = lse.isfinite()
    return rows if real is None else rows & real[:, None].to(rows.device)


def result_dtype(call: WatchedCall) -> torch.dtype:
    """float64 for a float64 model, else float32."""
    attention = call.attention
    source = attention.weights if isinstance(attention, OwnWeights) else attention.q
    return torch.promote_types(source.dtype, torch.float32)


def cells(index: Tensor, size: int, n: int) -> Tensor:
    """The cell of each row or column, of n cells; cell c covers [c · size // n, (c + 1) · size // n).

    >>> cells(torch.arange(7), size=7, n=3)
    tensor([0, 0, 1, 1, 2, 2, 2])
    """
    edges = torch.arange(1, n + 1, device=index.device) * size // max(n, 1)
    return torch.bucketize(index, edges, right=True)
