"""What the mask alone decides: how many keys a query may see, how far away they are, how many queries see a key.

A weight of 0.5 on the previous token says much where a query may see a thousand keys, and nothing where it may see two.
Roles are compared with these numbers.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import CAUSAL, EVERYTHING, Dense, Mask, Padding, Parts, key_padding, to_four_axes, window
from regard.heads.calls.call import Attention, WatchedCall
from regard.support.hidden_scores import may_see_among

_TILE = 2**24  # entries of a dense mask at a time
_RECENT = 4  # how many masks of a model's scores are remembered: those of its kinds of layers


def is_counted_by_mask(attention: Attention) -> bool:
    """Does a mask of causal, window and padding alone decide which keys are visible? Counting needs no T × S tile."""
    return getattr(attention, "bias", None) is None and attention.mask.parts().rest is None


def visible_key_counts(call: WatchedCall) -> tuple[Tensor, Tensor]:
    """How many keys each query may see, and their mean distance: two of (B or 1, H or 1, T), NaN in other rows."""
    if is_counted_by_mask(call.attention):
        count, total = _plain_rows(call, call.attention.mask)
    else:
        parts = []
        for rows in row_tiles(call):
            tile = visible_tile(call, rows)
            apart = (rows[:, None] + call.shift - torch.arange(call.sizes[3], device=call.device)).abs()
            parts.append((tile.sum(-1), (tile * apart).sum(-1).double()))
        count, total = (torch.cat(part, -1) for part in zip(*parts, strict=True))
    counted = count > 0
    if call.origin.real is not None:
        counted = counted & call.origin.real[:, None].to(counted.device)
    mean = total / count.clamp(min=1)
    return torch.where(counted, count, torch.nan).float(), torch.where(counted, mean, torch.nan).float()


def sees_a_key(call: WatchedCall) -> Tensor:
    """(B or 1, H or 1, T) bool: may the query see any key?"""
    if is_counted_by_mask(call.attention):
        return _plain_rows(call, call.attention.mask)[0] > 0
    return torch.cat([visible_tile(call, rows).any(-1) for rows in row_tiles(call)], -1)


def queries_per_key(call: WatchedCall) -> Tensor:
    """How many of the queries that count may see each key: (B or 1, H or 1, S), integers."""
    (B, _, T, S), real_rows = call.sizes, call.origin.real
    if not is_counted_by_mask(call.attention):
        total = torch.zeros(1, dtype=torch.long, device=call.device)
        for rows in row_tiles(call):
            tile = visible_tile(call, rows)
            if real_rows is not None:
                tile = tile & real_rows[:, None, rows, None]
            total = total + tile.sum(2)
        return total if total.dim() == 3 else total.expand(B, 1, S)
    parts = call.attention.mask.parts()
    real = torch.ones(1, T, device=call.device) if real_rows is None else real_rows.to(call.device)
    row = torch.arange(S, device=call.device) - (S - T)  # the query at the position of each key
    count = _sums(real.long(), *_visible_range(parts, row, T, of_queries=True))
    return (count * _real_keys(parts, S, call.device))[:, None]


class MasksOfScores:
    """The masks of a model that writes its scores out: as rules, where they are, and one for all layers alike."""

    def __init__(self) -> None:
        self._recent: list[tuple[Tensor, Mask]] = []

    def of(self, seen: Tensor) -> Mask:
        """The mask that is True in seen, (B, H, T, S)."""
        for known, mask in self._recent:
            if known.shape[::2] == seen.shape[::2] and _equal(known, seen):
                return mask
        seen = seen[:, :1] if _equal(seen[:, :1], seen) else seen
        mask = mask_written_out(seen)
        self._recent = [(seen, mask), *self._recent[: _RECENT - 1]]
        return mask

    def forget(self) -> None:
        self._recent.clear()


def mask_written_out(seen: Tensor) -> Mask:
    """The mask that is True in seen, (B, H or 1, T, S): causal, a window and padding, or written out.

    >>> mask_written_out(torch.ones(1, 1, 5, 7, dtype=torch.bool).tril(2)).name
    'causal'
    """
    T, S = seen.shape[2:]
    if bool(seen.all()):
        return EVERYTHING
    if seen.shape[1] > 1:
        return Dense(seen)
    keys, any_text = seen.any(2)[:, 0], seen.any(0)[0]  # (B, S), (T, S)
    padding: Mask = EVERYTHING if bool(keys.all()) else Padding(keys)
    first, last = any_text.byte().argmax(1), S - 1 - any_text.flip(1).byte().argmax(1)  # key of each query
    at = torch.arange(S - T, S, device=seen.device)
    near = window(int((torch.maximum(at - first, last - at) * any_text.any(1)).max()) + 1)
    # The first that is enough: a rule that hides nothing here would say something about positions that is not known.
    for rules in ((), (CAUSAL,), (near,), (CAUSAL, near)):
        mask = reduce(_both, rules, padding)
        if _equal(mask.dense(T, S, seen.device), seen):
            return mask
    return Dense(seen)


def _both(one: Mask, other: Mask) -> Mask:
    return other if one is EVERYTHING else one & other


def _equal(one: Tensor, other: Tensor) -> bool:
    """Are they equal, where one is repeated along its axes of size 1?"""
    return all(a in (1, b) for a, b in zip(one.shape, other.shape, strict=True)) and bool((one == other).all())


def _plain_rows(call: WatchedCall, mask: Mask) -> tuple[Tensor, Tensor]:
    """How many keys each query sees and the sum of their distances, (B or 1, 1, T) each, without a T × S tile.

    A query sees the real keys of one range. Those up to its own position are at − j away, the others j − at.
    """
    T, S = call.sizes[2:]
    at = torch.arange(T, device=call.device) + call.shift
    low, high = _visible_range(mask.parts(), at, S)
    middle = (at + 1).clamp(low, high)
    real = _real_keys(mask.parts(), S, call.device)
    places = real * torch.arange(S, device=call.device)
    behind, ahead = _sums(real, low, middle), _sums(real, middle, high)
    distance = at * behind - _sums(places, low, middle) + _sums(places, middle, high) - at * ahead
    return (behind + ahead)[:, None], distance[:, None].double()


def _visible_range(parts: Parts, at: Tensor, size: int, of_queries: bool = False) -> tuple[Tensor, Tensor]:
    """Of `size` keys, those, [low, high), that a query at each position may see; or of queries, those that see it."""
    low, high = torch.zeros_like(at), torch.full_like(at, size)
    if parts.window is not None:
        low, high = at - parts.window + 1, at + parts.window
    if parts.causal and of_queries:
        low = torch.maximum(low, at)
    elif parts.causal:
        high = torch.minimum(high, at + 1)
    low = low.clamp(0, size)
    return low, torch.maximum(high.clamp(0, size), low)


def _sums(values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The sums of values (B, S) over the ranges [low, high): (B, number of ranges)."""
    running = torch.nn.functional.pad(values.cumsum(-1), (1, 0))
    return running[:, high] - running[:, low]


def visible_tile(call: WatchedCall, rows: Tensor) -> Tensor:
    """The mask of these rows, (B or 1, H or 1, R, S)."""
    (_, _, T, S), attention = call.sizes, call.attention
    tile = attention.mask.tile(rows, torch.arange(S, device=call.device), S - T)
    tile = to_four_axes(tile).expand(-1, -1, len(rows), S)
    if isinstance(attention, QK) and attention.bias is not None:
        bias = to_four_axes(attention.bias)
        tile = tile & may_see_among(bias if bias.shape[2] == 1 else bias[:, :, rows])
    return tile


def row_tiles(call: WatchedCall) -> list[Tensor]:
    """All query rows, as many at a time as fit a tile."""
    B, H, T, S = call.sizes
    return list(torch.arange(T, device=call.device).split(max(1, _TILE // max(B * H * S, 1))))


def _real_keys(parts: Parts, S: int, device: torch.device) -> Tensor:
    """(B or 1, S): 1 for keys that are not padding."""
    if parts.keys is None:
        return torch.ones(1, S, dtype=torch.long, device=device)
    return key_padding(parts.keys, S, device).long()
