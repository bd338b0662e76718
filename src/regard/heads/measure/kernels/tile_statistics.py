"""The statistics of every row and key from exact weights, a tile of a few heads at a time, in plain torch.

Several heads at once, because a small tile of one head is computed faster than its operations are started. On a CPU
each thread takes groups of heads; with no more threads than groups, their number does not change a bit of the results.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regard.attention.numerics import without_autocast
from regard.heads.calls.call import Attention, OwnWeights
from regard.heads.measure.kernels import exact_weights as exact
from regard.heads.measure.kernels.exact_weights import HIDDEN, LOG2E, HeadWeights, Tile

GROUP_ROWS = 128  # the rows of a tile of several heads: with fewer, less of a causal tile is computed and then hidden
GROUP_WEIGHTS = 1 << 20  # in such a tile; with more, passes over it wait for memory


def pass_over_tiles(
    attention: Attention,
    lse: Tensor,
    counted: Tensor,
    targets: Tensor,
    shift: int,
    columns: bool = True,
    threads: int | None = None,
) -> dict[str, Tensor]:
    """Entropy, distance, the largest weight and its key, the weights on chosen keys, and what keys receive.

    lse: (B, H, T), with anything where counted (B, H, T) is False. targets: (N, B, T), −1 for none.
    shift: query i is at key position i + shift.
    threads: for heads, if not as many as torch uses.
    """
    if exact.are_few(attention):
        return _all_at_once(attention, lse, counted, targets, shift)
    B, H, T, S = attention.sizes
    new: Any = {"device": attention.device, "dtype": torch.promote_types(lse.dtype, torch.float32)}
    sums = {name: torch.zeros(B, H, T, **new) for name in ("entropy", "distance", "largest")}
    sums["largest_key"] = torch.zeros(B, H, T, device=attention.device, dtype=torch.int64)
    sums["chosen"] = torch.zeros(B, H, T, targets.shape[0], **new)
    sums["received"] = torch.zeros(B, H, S, **new)
    groups = head_groups(attention)
    rows = GROUP_ROWS if attention.device.type == "cpu" else exact.rows_of(attention)
    row_tiles = [tile for tile in exact.tiles(attention, 0, 0, rows) if tile.high > tile.low]  # alike for every head
    keys, inside = _columns(targets, row_tiles)
    spare: list[Tensor] = []  # buffers of groups that are done: new memory is slow to use for the first time

    def add_group(group_of: tuple[int, slice]) -> None:
        b, heads = group_of
        size = 0 if isinstance(attention, OwnWeights) else (groups[0].stop - groups[0].start) * rows * S
        try:
            buffers = spare.pop()
        except IndexError:
            buffers = torch.empty(2, size, **new)
        group = HeadWeights(attention, b, heads, lse, counted, buffers)
        part = {name: values[b, heads] for name, values in sums.items()}
        for tile in row_tiles:
            x, p = group.logs_and_weights(tile)  # (G, rows, keys)
            here = (slice(None), slice(tile.first, tile.last))
            part["distance"][here] = _distance(p, tile, shift)
            part["largest"][here], place = _largest(x)
            part["largest_key"][here] = place + tile.low
            part["chosen"][here] = p.gather(2, keys[b, tile.first : tile.last].expand(p.shape[0], -1, -1))
            if columns:
                part["received"][:, tile.low : tile.high] += (p.new_ones(p.shape[0], 1, p.shape[1]) @ p)[:, 0]
            part["entropy"][here] = x.mul_(p).sum(-1)
        spare.append(buffers)

    with without_autocast(lse):
        exact.over_heads(attention, add_group, [(b, heads) for b in range(B) for heads in groups], threads)
    sums["entropy"].div_(-LOG2E).abs_()  # rounding may leave it at −0
    sums["largest"].exp2_()
    sums["chosen"] = sums["chosen"].permute(3, 0, 1, 2).masked_fill(~inside[:, :, None], 0)
    return sums


def head_groups(attention: Attention) -> list[slice]:
    """Heads whose tiles are computed together: as many as fit GROUP_WEIGHTS on a CPU, one on a GPU.

    The number of threads must not matter: a product of several matrices rounds differently from products of one each.
    """
    _, H, _, S = attention.sizes
    most = max(GROUP_WEIGHTS // (GROUP_ROWS * max(S, 1)), 1) if attention.device.type == "cpu" else 1
    size = math.ceil(H / math.ceil(H / most)) if H else 1  # groups of equal size, where that is possible
    return [slice(h, min(h + size, H)) for h in range(0, H, size)]


def _columns(targets: Tensor, row_tiles: list[Tile]) -> tuple[Tensor, Tensor]:
    """Each target as a column of its row's tile, (B, T, N), and whether it is one, (N, B, T)."""
    low, high = torch.zeros(2, targets.shape[2], dtype=torch.int64)
    for tile in row_tiles:
        low[tile.first : tile.last], high[tile.first : tile.last] = tile.low, tile.high
    low, high = low.to(targets.device), high.to(targets.device)
    keys = torch.minimum(targets, high - 1).sub_(low).clamp_(min=0)
    return keys.permute(1, 2, 0).contiguous(), (targets >= low) & (targets < high)


def _all_at_once(attention: Attention, lse: Tensor, counted: Tensor, targets: Tensor, shift: int) -> dict[str, Tensor]:
    """one_pass() of a short text, by the definitions."""
    B, H, T, S = attention.sizes
    if isinstance(attention, OwnWeights):
        p = attention.weights.to(torch.promote_types(attention.weights.dtype, torch.float32))
        x = p.log2().clamp_(min=HIDDEN)
    else:
        x = (exact.all_scores(attention, HIDDEN) - LOG2E * torch.where(counted, lse, 0)[..., None]).clamp_(min=HIDDEN)
        p = x.exp2()
    p = p.masked_fill(~counted[..., None], 0)
    most, key = x.max(-1)
    at = torch.arange(T, device=x.device)[:, None] + shift
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
    size = x.shape[-1] // 64 * 64
    if size < 256:
        most, place = x.max(-1)
        return most, place
    blocks = x[..., :size].unflatten(-1, (-1, 64))
    most, block = blocks.amax(-1).max(-1)
    place = blocks.gather(-2, block[..., None, None].expand(*block.shape, 1, 64)).squeeze(-2).argmax(-1) + block * 64
    if size < x.shape[-1]:
        rest, where = x[..., size:].max(-1)
        place = torch.where(rest > most, where + size, place)
        most = torch.maximum(most, rest)
    return most, place


def _distance(p: Tensor, tile: Tile, shift: int) -> Tensor:
    """Σ p · |at − j|: left and right of all rows as one product each, in between element by element."""
    first, last, low, high = tile.first + shift, tile.last + shift, tile.low, tile.high
    left, right = max(min(first, high), low) - low, max(min(last, high), low) - low
    # Counted from the first row: small numbers stay exact.
    at = torch.arange(last - first, device=p.device, dtype=p.dtype)
    cols = torch.arange(low - first, high - first, device=p.device, dtype=p.dtype)
    total = (p[..., left:right] * (at[:, None] - cols[left:right]).abs()).sum(-1)
    if left > 0:
        total += at * p[..., :left].sum(-1) - p[..., :left] @ cols[:left]
    if right < p.shape[2]:
        total += p[..., right:] @ cols[right:] - at * p[..., right:].sum(-1)
    return total
