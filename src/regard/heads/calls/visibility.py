"""What the mask alone decides: how many keys a query may see, how far away they are, how many queries see a key.

A weight of 0.5 on the previous token says much where a query may see a thousand keys, and nothing where it may see two.
Roles are compared with these numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import CAUSAL, EVERYTHING, Mask, Parts, key_padding, padding, to_four_axes
from regard.heads.calls.call import Attention, OwnWeights, WatchedCall
from regard.support.hidden_scores import may_see

_TILE = 2**24  # entries of a dense mask at a time
_ROWS = 512  # rows of a model's own weights at a time


def is_counted_by_mask(attention: Attention) -> bool:
    """Does a mask of causal, window and padding alone decide which keys are visible? Counting needs no T × S tile."""
    return isinstance(attention, QK) and attention.bias is None and attention.mask.parts().rest is None


def visible_key_counts(call: WatchedCall) -> tuple[Tensor, Tensor]:
    """How many keys each query may see, and their mean distance: two of (B or 1, H or 1, T), NaN in other rows."""
    attention = call.attention
    mask = attention.mask if is_counted_by_mask(attention) else None
    if isinstance(attention, OwnWeights) and not call.origin.extra:
        mask = _mask_behind(call, attention)
    if mask is not None and mask.parts().rest is None:
        count, total = _plain_rows(call, mask)
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


def reach_of(scores: Tensor) -> int:
    """How far from its position any query may see a key, itself included; 0 where that is the whole text."""
    T, S = scores.shape[-2:]
    if bool(may_see(torch.stack([scores[..., -1, 0], scores[..., 0, -1]])).any()):
        return 0
    i, j = may_see(scores).reshape(-1, T, S).any(0).nonzero(as_tuple=True)
    return int((i + S - T - j).abs().max()) + 1 if len(i) else 0


def _mask_behind(call: WatchedCall, own: OwnWeights) -> Mask:
    """The mask that a model's own weights seem to have had: causal where no weight is ahead, without unused keys.

    A single 0 is no evidence: in half precision small weights are 0, too.
    """
    (T, S), real = own.weights.shape[2:], call.origin.real
    mask = padding((own.weights > 0).any(2).any(1)) if own.mask is EVERYTHING else own.mask
    counts = torch.ones(1, T, device=call.device) if real is None else real.to(call.device)
    ahead = any(  # a padded row that sees nothing may have its weights anywhere
        bool(((part.triu(S - T + 1 + row) > 0).any(-1) & (counts[:, None, row : row + _ROWS] > 0)).any())
        for row, part in zip(range(0, max(T, 1), _ROWS), own.weights.split(_ROWS, dim=2), strict=True)
    )
    return mask if ahead else mask & CAUSAL


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
    if isinstance(attention, OwnWeights):
        return tile & (attention.weights[:, :, rows] > 0)
    if attention.bias is not None:
        bias = to_four_axes(attention.bias)
        tile = tile & may_see(bias if bias.shape[2] == 1 else bias[:, :, rows])
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
