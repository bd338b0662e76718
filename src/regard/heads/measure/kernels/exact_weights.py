"""Exact weights a few rows at a time, in plain torch: for every statistic on the CPU, for the rare ones on a GPU.

A tile is a few query rows by all the keys that they may see, of one head or of several at once. It fits into the cache,
so that several passes over it cost little; T × S is never in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import EVERYTHING, to_four_axes
from regard.attention.numerics import without_autocast
from regard.heads.calls.call import Attention, OwnWeights
from regard.support.torch_threads import run_side_by_side

ROWS = 256
FEW = 1 << 20  # up to so many weights are computed at once: head by head, short texts would be all overhead
LOG2E = 1.4426950408889634
HIDDEN = -1.0e4  # log₂ of a hidden weight: exp2 of it is 0, and unlike −∞ it can be multiplied by 0


class Tile(NamedTuple):
    """Rows [first, last) and keys [low, high) of head h of batch element b, or of a group of heads from h on."""

    b: int
    h: int
    first: int
    last: int
    low: int
    high: int


def rows_of(attention: Attention) -> int:
    """The rows of a tile: few on a CPU, for its cache, twice as many for shorter texts; more on a GPU, to fill it."""
    S = max(attention.sizes[3], 1)
    return max(ROWS, min(2 * ROWS, (1 << 21) // S) if attention.device.type == "cpu" else (1 << 25) // S)


def tiles(
    attention: Attention, head: int | None = None, batch: int | None = None, rows: int | None = None
) -> Iterator[Tile]:
    """All tiles, or those of one head, of one batch element."""
    B, H, T, S = attention.sizes
    rows = rows or rows_of(attention)
    texts, heads = range(B) if batch is None else (batch,), range(H) if head is None else (head,)
    for b, h, first in product(texts, heads, range(0, T, rows)):
        last = min(first + rows, T)
        low, high = attention.mask.span(first + S - T, last - 1 + S - T, S)
        yield Tile(b, h, first, last, low, max(high, low))


class HeadScores:
    """The scores of a few heads of batch element b: queries and keys are prepared once, so a tile is one product.

    The queries contain the scale, and one more channel subtracts the rows' lse, (G, T), from every score. Scores are in
    units of log 2, because exp2 is faster than exp.
    """

    def __init__(self, attention: QK, b: int, heads: slice, lse: Tensor | None = None) -> None:
        q, k = attention.q, attention.k
        self.attention, self.b, self.heads = attention, b, heads
        wide = torch.promote_types(q.dtype, torch.float32)
        shared = q.shape[1] // k.shape[1]  # so many heads have the same keys
        q, k = q[b, heads], k[b, heads if shared == 1 else [h // shared for h in range(heads.start, heads.stop)]]
        (G, T, D), S = q.shape, k.shape[1]
        self.q = torch.empty(G, T, D + 1, dtype=wide, device=q.device)
        self.q[..., :D] = q.to(wide) * (attention.scale * LOG2E)
        self.q[..., D] = 0 if lse is None else -LOG2E * lse
        self.k = torch.ones(G, S, D + 1, dtype=wide, device=q.device)
        self.k[..., :D] = k
        self.k, self.shift = self.k.mT, S - T
        self.parts = attention.mask.parts()
        self.future: dict[tuple[int, int, int, float], Tensor] = {}

    def scores(self, tile: Tile, hidden: float = -torch.inf, out: Tensor | None = None) -> Tensor:
        """(G, rows, keys): the scores of a tile ÷ log 2, minus the rows' lse where that was given.

        Those of hidden keys are `hidden`. out: memory for the result.
        """
        _, _, first, last, low, high = tile
        q, k = self.q[:, first:last], self.k[:, :, low:high]
        G, rows, cols = q.shape[0], last - first, high - low
        with without_autocast(q):
            x = q @ k if out is None else torch.bmm(q, k, out=out[: G * rows * cols].view(G, rows, cols))
        bias, slopes = self.attention.bias, self.attention.alibi
        if bias is not None:
            part = self._of_heads(to_four_axes(bias))
            part = part if part.shape[1] == 1 else part[:, first:last]
            x += LOG2E * (part if part.shape[2] == 1 else part[:, :, low:high]).to(x.dtype)
            x.clamp_(min=hidden)
        if slopes is not None:
            at, places = self._places(tile)
            x -= LOG2E * slopes[self.heads, None, None].to(x.dtype) * (at[:, None] + self.shift - places).abs()
        return self._hide(tile, x, hidden)

    def _hide(self, tile: Tile, x: Tensor, hidden: float) -> Tensor:
        if self.parts.rest is None and self.parts.keys is None and self.parts.window is None:
            # Only columns after the first query can be in the future of a row.
            edge = max(min(tile.first + self.shift + 1, tile.high), tile.low) - tile.low
            if self.parts.causal and edge < x.shape[2]:
                last = tile.first + self.shift - tile.low - edge  # the last visible column of the first row
                size = (x.shape[1], x.shape[2] - edge)
                key = (*size, last, hidden)
                if key not in self.future:  # the same in nearly all tiles
                    self.future[key] = x.new_full(size, hidden).triu_(last + 1)
                x[..., edge:].tril_(last).add_(self.future[key])  # NaN is hidden too; faster than masked_fill_
            return x
        seen = self.attention.mask.tile(*self._places(tile), self.shift)
        return x.masked_fill_(~(seen if seen.dim() == 2 else self._of_heads(to_four_axes(seen))), hidden)

    def _of_heads(self, one: Tensor) -> Tensor:
        """The part of a tensor (B or 1, H or 1, …) that belongs to these heads."""
        part = one[self.b if one.shape[0] > 1 else 0]
        return part[self.heads] if part.shape[0] > 1 else part

    def _places(self, tile: Tile) -> tuple[Tensor, Tensor]:
        device = self.q.device
        return torch.arange(tile.first, tile.last, device=device), torch.arange(tile.low, tile.high, device=device)


class HeadWeights:
    """The weights of a few heads of batch element b, a tile at a time; 0 in rows that do not count.

    lse and counted: (B, H, T). buffers: memory for two tiles.
    """

    def __init__(
        self, attention: Attention, b: int, heads: slice, lse: Tensor, counted: Tensor, buffers: Tensor | None = None
    ) -> None:
        counts, self.buffers = counted[b, heads], buffers
        self.rest = None if bool(counts.all()) else ~counts[..., None]
        self.own = attention.weights[b, heads] if isinstance(attention, OwnWeights) else None
        if not isinstance(attention, OwnWeights):
            self.scores = HeadScores(attention, b, heads, torch.where(counts, lse[b, heads], 0))

    def tile(self, tile: Tile) -> Tensor:
        """The weights of a tile, (G, rows, keys)."""
        return self._counted(tile, self.scores.scores(tile).exp2_() if self.own is None else self._part(self.own, tile))

    def logs_and_weights(self, tile: Tile) -> tuple[Tensor, Tensor]:
        """log₂ of the weights of a tile, HIDDEN where a key is, and the weights; the next tile overwrites them."""
        if self.own is not None:
            p = self._part(self.own, tile)
            return p.log2().clamp_(min=HIDDEN), self._counted(tile, p)
        first, second = (None, None) if self.buffers is None else self.buffers
        x = self.scores.scores(tile, HIDDEN, first)
        return x, self._counted(tile, torch.exp2(x, out=None if second is None else second[: x.numel()].view_as(x)))

    def _part(self, own: Tensor, tile: Tile) -> Tensor:
        p = own[:, tile.first : tile.last, tile.low : tile.high]
        return p if p.dtype is torch.float64 else p.float()

    def _counted(self, tile: Tile, p: Tensor) -> Tensor:
        if self.rest is None:
            return p
        rest = self.rest[:, tile.first : tile.last]  # a model's own weights must stay: its backward needs them
        return p.masked_fill(rest, 0) if self.own is not None else p.masked_fill_(rest, 0)


def exact_logsumexp(attention: QK, threads: int | None = None) -> Tensor:
    """log Σ exp(scores), (B, H, T); −∞ where a query sees nothing. threads: for heads, if not as many as torch uses."""
    B, H, T, _ = attention.sizes
    if are_few(attention):
        return (all_scores(attention, -torch.inf) / LOG2E).logsumexp(-1)
    lse = torch.full(
        (B, H, T), -torch.inf, device=attention.device, dtype=torch.promote_types(attention.q.dtype, torch.float32)
    )

    def add_head(place: tuple[int, int]) -> None:
        b, h = place
        head = HeadScores(attention, b, slice(h, h + 1))
        for tile in tiles(attention, h, b):
            if tile.high > tile.low:
                lse[b, h, tile.first : tile.last] = (head.scores(tile)[0] / LOG2E).logsumexp(-1)

    over_heads(attention, add_head, [(b, h) for b in range(B) for h in range(H)], threads)
    return lse


def over_heads(attention: Attention, work: Callable[[Any], object], places: Sequence[Any], threads: int | None) -> None:
    """Call work(place) for every place, a head or a few heads of a batch element; on a CPU several side by side."""
    if attention.device.type == "cpu":
        run_side_by_side(work, places, threads)
    else:
        for place in places:
            work(place)


def are_few(attention: Attention) -> bool:
    """Are the weights so few that they are computed at once?"""
    B, H, T, S = attention.sizes
    return 0 < B * H * T * S <= FEW


def all_scores(attention: QK, hidden: float) -> Tensor:
    """The scores ÷ log 2 of all heads, (B, H, T, S)."""
    B, H, T, S = attention.sizes
    q, k = attention.q, attention.k
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(wide) * (attention.scale * LOG2E), k.to(wide)
    with without_autocast(q):  # queries of heads that share keys are rows of one product
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
