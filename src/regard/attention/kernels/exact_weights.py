"""Exact weights a few rows at a time, in plain torch: for every statistic on the CPU, for the rare ones on a GPU.

A tile is a few query rows of one head by all the keys that they may see. It fits into the cache, so that several passes
over it cost little; T × S is never in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.call import Call
from regard.attention.masks import EVERYTHING, to_four_axes

HIDDEN = -1.0e4  # log₂ of a hidden weight: exp2 of it is 0, and unlike −∞ it can be multiplied by 0
ROWS = 256
FEW = 1 << 20  # up to so many weights are computed at once: head by head, short texts would be all overhead
LOG2E = 1.4426950408889634


class Tile(NamedTuple):
    """Rows [first, last) and keys [low, high) of one head of one batch element."""

    b: int
    h: int
    first: int
    last: int
    low: int
    high: int


def rows_of(attention: Call) -> int:
    """The rows of a tile: few on a CPU, for its cache, twice as many for shorter texts; more on a GPU, to fill it."""
    S = max(attention.sizes[3], 1)
    return max(ROWS, min(2 * ROWS, (1 << 21) // S) if attention.device.type == "cpu" else (1 << 25) // S)


def tiles(attention: Call, head: int | None = None, batch: int | None = None) -> Iterator[Tile]:
    """All tiles, or those of one head, of one batch element."""
    B, H, T, S = attention.sizes
    rows = rows_of(attention)
    for b in range(B) if batch is None else (batch,):
        for h in range(H) if head is None else (head,):
            for first in range(0, T, rows):
                last = min(first + rows, T)
                low, high = attention.mask.span(first + S - T, last - 1 + S - T, S)
                yield Tile(b, h, first, last, low, max(high, low))


class HeadScores:
    """The scores of one head: queries and keys are prepared once, so that a tile is one matrix product.

    The queries contain the scale, and one more channel subtracts the rows' lse, (T,), from every score. Scores are in
    units of log 2, because exp2 is faster than exp.
    """

    def __init__(self, attention: Call, b: int, h: int, lse: Tensor | None = None) -> None:
        q, k = attention.q, attention.k
        assert q is not None
        assert k is not None
        self.attention, self.b, self.h = attention, b, h
        wide = torch.float64 if q.dtype is torch.float64 else torch.float32
        q, k = q[b, h].to(wide) * (attention.scale * LOG2E), k[b, h // (q.shape[1] // k.shape[1])].to(wide)
        if lse is not None:
            q = torch.cat([q, -LOG2E * lse[:, None].to(wide)], dim=-1)
            k = torch.cat([k, k.new_ones(k.shape[0], 1)], dim=-1)
        self.q, self.k, self.shift = q, k.mT, k.shape[0] - q.shape[0]
        self.parts = attention.mask.parts()
        self.future: dict[tuple[int, int, int], Tensor] = {}

    def scores(self, tile: Tile, hidden: float = -torch.inf, out: Tensor | None = None) -> Tensor:
        """The scores of a tile ÷ log 2, minus the rows' lse where that was given; those of hidden keys are `hidden`."""
        _, _, first, last, low, high = tile
        q, k = self.q[first:last], self.k[:, low:high]
        with torch.autocast(q.device.type, enabled=False):
            x = q @ k if out is None else torch.mm(q, k, out=out[: q.shape[0] * k.shape[1]].view(q.shape[0], -1))
        bias, slopes = self.attention.bias, self.attention.alibi
        if bias is not None:
            bias = to_four_axes(bias)
            part = bias[self.b if bias.shape[0] > 1 else 0, self.h if bias.shape[1] > 1 else 0]
            part = part if part.shape[0] == 1 else part[first:last]
            x += LOG2E * (part if part.shape[1] == 1 else part[:, low:high]).to(x.dtype)
            x.clamp_(min=hidden)
        if slopes is not None:
            rows, cols = self._places(tile)
            x -= LOG2E * slopes[self.h].to(x.dtype) * (rows[:, None] + self.shift - cols).abs()
        return self._hide(tile, x, hidden)

    def _hide(self, tile: Tile, x: Tensor, hidden: float) -> Tensor:
        if self.parts.rest is None and self.parts.keys is None and self.parts.window is None:
            # Only columns after the first query can be in the future of a row.
            edge = max(min(tile.first + self.shift + 1, tile.high), tile.low) - tile.low
            if self.parts.causal and edge < x.shape[1]:
                future = (x.shape[0], x.shape[1] - edge, tile.first + self.shift - tile.low - edge)
                if future not in self.future:  # the same in nearly all tiles
                    rows, cols = torch.arange(future[0]), torch.arange(future[1])
                    self.future[future] = (cols > rows[:, None] + future[2]).to(x.device)
                x[:, edge:].masked_fill_(self.future[future], hidden)
            return x
        seen = self.attention.mask.tile(*self._places(tile), self.shift)
        while seen.dim() > 2:
            spot = self.b if seen.dim() == 4 else self.h
            seen = seen[spot if seen.shape[0] > 1 else 0]
        return x.masked_fill_(~seen, hidden)

    def _places(self, tile: Tile) -> tuple[Tensor, Tensor]:
        device = self.q.device
        return torch.arange(tile.first, tile.last, device=device), torch.arange(tile.low, tile.high, device=device)


class HeadWeights:
    """The weights of one head, a tile at a time; rows whose lse (B, H, T) is not finite have none."""

    def __init__(self, attention: Call, b: int, h: int, lse: Tensor | None) -> None:
        self.own, self.rest = attention.weights, None
        if self.own is None:
            assert lse is not None
            known = lse[b, h].isfinite()
            self.rest = None if bool(known.all()) else ~known
            self.head = HeadScores(attention, b, h, torch.where(known, lse[b, h], 0))

    def tile(self, tile: Tile) -> Tensor:
        """The weights of a tile."""
        b, h, first, last, low, high = tile
        if self.own is not None:
            part = self.own[b, h, first:last, low:high]
            return part if part.dtype is torch.float64 else part.float()
        p = self.head.scores(tile).exp2_()
        return p if self.rest is None else p.masked_fill_(self.rest[first:last, None], 0)


def weights(attention: Call, tile: Tile, lse: Tensor | None) -> Tensor:
    """The weights of a tile; rows whose lse is not finite have none."""
    return HeadWeights(attention, tile.b, tile.h, lse).tile(tile)


def logsumexp(attention: Call) -> Tensor:
    """log Σ exp(scores), (B, H, T); −∞ where a query sees nothing."""
    B, H, T, _ = attention.sizes
    assert attention.q is not None
    if _few(attention):
        return (_all_scores(attention, -torch.inf) / LOG2E).logsumexp(-1)
    wide = torch.float64 if attention.q.dtype is torch.float64 else torch.float32
    lse = torch.full((B, H, T), -torch.inf, device=attention.device, dtype=wide)
    for b in range(B):
        for h in range(H):
            head = HeadScores(attention, b, h)
            for tile in tiles(attention, h, b):
                if tile.high > tile.low:
                    lse[b, h, tile.first : tile.last] = (head.scores(tile) / LOG2E).logsumexp(-1)
    return lse


def one_pass(attention: Call, lse: Tensor, counted: Tensor, targets: Tensor, columns: bool = True) -> dict[str, Tensor]:
    """Entropy, distance, the largest weight and its key, the weights on chosen keys, and what keys receive.

    lse: (B, H, T), with anything where counted (B, H, T) is False. targets: (N, B, T), −1 for none.
    """
    if _few(attention):
        return _all_at_once(attention, lse, counted, targets)
    B, H, T, S = attention.sizes
    wide = torch.float64 if lse.dtype is torch.float64 else torch.float32
    new: Any = {"device": attention.device, "dtype": wide}
    sums = {name: torch.zeros(B, H, T, **new) for name in ("entropy", "distance", "largest")}
    sums["largest_key"] = torch.zeros(B, H, T, device=attention.device, dtype=torch.int64)
    sums["chosen"] = torch.zeros(targets.shape[0], B, H, T, **new)
    sums["received"] = torch.zeros(B, H, S, **new)
    lse = torch.where(counted, lse, 0)
    buffers = None if attention.weights is not None else torch.empty(2, rows_of(attention) * S, **new)  # for all tiles
    for b in range(B):
        for h in range(H):
            head = None if buffers is None else HeadScores(attention, b, h, lse[b, h])
            all_count = bool(counted[b, h].all())
            for tile in tiles(attention, h, b):
                if tile.high <= tile.low:
                    continue
                x, p = _log_weights(attention, tile) if head is None else _from_scores(head, tile, buffers)
                if not all_count:
                    rest = ~counted[b, h, tile.first : tile.last, None]
                    # A model's own weights must stay as they are: its backward needs them.
                    p = p.masked_fill(rest, 0) if head is None else p.masked_fill_(rest, 0)
                _add_tile(sums, x, p, tile, attention.shift, targets[:, b], columns)
    sums["entropy"].div_(-LOG2E).abs_()  # rounding may leave it at −0
    sums["largest"].exp2_()
    return sums


def _log_weights(attention: Call, tile: Tile) -> tuple[Tensor, Tensor]:
    """log₂ of a model's own weights, and the weights."""
    p = weights(attention, tile, None)
    return p.log2().clamp_(min=HIDDEN), p


def _from_scores(head: HeadScores, tile: Tile, buffers: Tensor | None) -> tuple[Tensor, Tensor]:
    """log₂ of the weights, and the weights, in the two buffers."""
    assert buffers is not None
    x = head.scores(tile, HIDDEN, buffers[0])
    return x, torch.exp2(x, out=buffers[1, : x.numel()].view_as(x))


def _add_tile(
    sums: dict[str, Tensor], x: Tensor, p: Tensor, tile: Tile, shift: int, targets: Tensor, columns: bool
) -> None:
    """Add the log₂ weights x and weights p of one tile to the statistics; x is overwritten."""
    b, h, first, last, low, high = tile
    here = (b, h, slice(first, last))
    sums["distance"][here] = _distance(p, tile, shift)
    sums["largest"][here], place = _largest(x)
    sums["largest_key"][here] = place + low
    if len(targets):
        key = targets[:, first:last].mT - low  # (rows, N)
        inside = (key >= 0) & (key < high - low)
        value = p.gather(1, key.clamp(0, high - low - 1))
        sums["chosen"][:, b, h, first:last] = torch.where(inside, value, 0).mT
    if columns:
        sums["received"][b, h, low:high] += p.sum(0)
    sums["entropy"][here] = x.mul_(p).sum(-1)


def _few(attention: Call) -> bool:
    B, H, T, S = attention.sizes
    return 0 < B * H * T * S <= FEW


def _all_scores(attention: Call, hidden: float) -> Tensor:
    """The scores ÷ log 2 of all heads, (B, H, T, S)."""
    B, H, T, S = attention.sizes
    q, k = attention.q, attention.k
    assert q is not None
    assert k is not None
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    q, k = q.to(wide) * (attention.scale * LOG2E), k.to(wide)
    with torch.autocast(q.device.type, enabled=False):  # queries of heads that share keys are rows of one product
        x = (q.reshape(B, k.shape[1], -1, q.shape[3]) @ k.mT).view(B, H, T, S)
    if attention.bias is not None:
        x = (x + LOG2E * attention.bias.to(wide)).clamp_(min=hidden)
    if attention.alibi is not None:
        at = torch.arange(S - T, S, device=x.device)[:, None]
        apart = (at - torch.arange(S, device=x.device)).abs()
        x = x - LOG2E * attention.alibi.to(wide)[:, None, None] * apart
    if attention.mask is EVERYTHING:
        return x
    return x.masked_fill(~attention.mask.dense(T, S, x.device), hidden)


def _all_at_once(attention: Call, lse: Tensor, counted: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """one_pass() of a short text, by the definitions."""
    B, H, T, S = attention.sizes
    if attention.weights is not None:
        p = attention.weights.to(torch.promote_types(attention.weights.dtype, torch.float32))
        x = p.log2().clamp_(min=HIDDEN)
    else:
        x = (_all_scores(attention, HIDDEN) - LOG2E * torch.where(counted, lse, 0)[..., None]).clamp_(min=HIDDEN)
        p = x.exp2()
    p = p.masked_fill(~counted[..., None], 0)
    most, key = x.max(-1)
    at = torch.arange(T, device=x.device)[:, None] + attention.shift
    apart = (at - torch.arange(S, device=x.device)).abs().to(p.dtype)
    places = targets.long().permute(1, 2, 0)[:, None].expand(B, H, T, -1)  # (B, H, T, N)
    value = p.gather(-1, places.clamp(min=0)).masked_fill(places < 0, 0)
    return {
        "entropy": (x * p).sum(-1).div_(-LOG2E).abs_(),
        "distance": (p * apart).sum(-1),
        "largest": most.exp2_(),
        "largest_key": key,
        "chosen": value.permute(3, 0, 1, 2),
        "received": p.sum(-2),
    }


def _largest(x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of each row and its index: the maxima of blocks of 64 first, which is much faster than one max()."""
    size = x.shape[1] // 64 * 64
    if size < 512:
        most, place = x.max(-1)
        return most, place
    blocks = x[:, :size].unflatten(1, (-1, 64))
    most, block = blocks.amax(-1).max(-1)
    place = blocks.gather(1, block[:, None, None].expand(-1, 1, 64))[:, 0].argmax(-1) + block * 64
    if size < x.shape[1]:
        rest, where = x[:, size:].max(-1)
        place = torch.where(rest > most, where + size, place)
        most = torch.maximum(most, rest)
    return most, place


def _distance(p: Tensor, tile: Tile, shift: int) -> Tensor:
    """Σ p · |at − j|: left and right of all rows as one product each, in between element by element."""
    first, last, low, high = tile.first + shift, tile.last + shift, tile.low, tile.high
    left, right = max(min(first, high), low) - low, max(min(last, high), low) - low
    at = torch.arange(
        last - first, device=p.device, dtype=p.dtype
    )  # counted from the first row: small numbers stay exact
    cols = torch.arange(low - first, high - first, device=p.device, dtype=p.dtype)
    total = p.new_zeros(p.shape[0])
    if left > 0:
        total += at * p[:, :left].sum(-1) - p[:, :left] @ cols[:left]
    if right > left:
        total += (p[:, left:right] * (at[:, None] - cols[left:right]).abs()).sum(-1)
    if right < p.shape[1]:
        total += p[:, right:] @ cols[right:] - at * p[:, right:].sum(-1)
    return total
