"""Target keys: for each query, the keys whose weights are statistics of their own."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from regard.attention.masks import key_padding
from regard.heads.calls.call import WatchedCall
from regard.heads.calls.visibility import is_counted_by_mask, row_tiles, visible_tile
from regard.heads.measure.registry import Start, Target

NONE = -(1 << 30)  # an earlier occurrence that does not exist; no step leads from it to a key


def target_keys(call: WatchedCall, counted: Tensor, targets: Iterable[Target]) -> list[Tensor]:
    """The key of each query, (B, T) for each target; −1 where there is none.

    counted: (B, H, T) bool, the queries that count.
    """
    T, S = call.sizes[2:]
    first = first_visible(call, counted)[:, None]
    at = torch.arange(T, device=call.device) + call.shift
    earlier = earlier_occurrence(call, first) if call.origin.tokens is not None and S else None
    return [locate(target, first, at, earlier, S - call.origin.extra) for target in targets]


def locate(target: Target, first: Tensor, at: Tensor, earlier: Tensor | None, size: int) -> Tensor:
    """The key of one target, (B, T), −1 where there is none, in a text of `size` keys.

    >>> locate(Target(Start.OWN, -1), first=torch.tensor([[0], [2]]), at=torch.arange(5), earlier=None, size=5)
    tensor([[-1,  0,  1,  2,  3],
            [-1, -1, -1,  2,  3]])
    """
    key = _unlimited(target, first, at, earlier)
    if target.start is Start.FIRST:  # it may be a key after those of the text, so size is no limit
        return key.clamp(min=-1)
    exists = key >= first.clamp(min=0)
    if target.step > 0:  # no start is after the text
        exists = exists & (key < size)
    return torch.where(exists, key, -1)


def _unlimited(target: Target, first: Tensor, at: Tensor, earlier: Tensor | None) -> Tensor:
    """(B, T): the key of a target, whether or not it exists."""
    if target.start is Start.FIRST:
        return (first + target.step).expand(-1, at.shape[-1])
    start = at if target.start is Start.OWN else earlier
    if start is None:  # nothing is known of the tokens
        start = at.new_full((first.shape[0], at.shape[-1]), NONE)
    return start + target.step


def dropped_targets(call: WatchedCall, targets: Iterable[Target]) -> list[Tensor]:
    """(B, T) bool for each target: is it a key of the text that the cache has dropped? Its weight is 0."""
    assert call.origin.first is not None
    first = call.origin.first[:, None].to(call.device)
    at = torch.arange(call.sizes[2], device=call.device) + call.shift
    earlier = earlier_occurrence(call, first) if call.origin.tokens is not None else None
    keys = [_unlimited(target, first, at, earlier) for target in targets]
    return [(key < 0) & (key >= first) for key in keys]


def first_visible(call: WatchedCall, counted: Tensor) -> Tensor:
    """(B,): the first key that any query that counts may see; negative where a cache has dropped it."""
    if call.origin.first is not None:  # queries of earlier calls may have seen more
        return call.origin.first.to(call.device)
    B, _, T, S = call.sizes
    parts = call.attention.mask.parts()
    by_mask = is_counted_by_mask(call.attention)
    if not S or not T or (by_mask and parts.keys is None and parts.window is None):
        return torch.zeros(B, dtype=torch.long, device=call.device)
    if not by_mask:  # from all rows of the mask, a few at a time
        seen = torch.zeros(B, S, dtype=torch.bool, device=call.device)
        for rows in row_tiles(call):
            seen |= (visible_tile(call, rows) & counted[:, :, rows, None]).any(2).any(1)
        return seen.int().argmax(-1)
    at = torch.arange(S - T, S, device=call.device)
    low = torch.zeros_like(at) if parts.window is None else (at - parts.window + 1).clamp(min=0)
    if parts.keys is None:
        nearest = low.clamp(max=S - 1).expand(B, T)
    else:  # from each key on, the next one that is not padding
        places = torch.where(key_padding(parts.keys, S, call.device), torch.arange(S, device=call.device), S)
        nearest = places.flip(-1).cummin(-1).values.flip(-1)[:, low.clamp(max=S - 1)]
    first = torch.where(counted.any(1), nearest, S).amin(-1)
    return torch.where(first < S, first, 0)


def earlier_occurrence(call: WatchedCall, first: Tensor | int) -> Tensor:
    """(B, T): the last earlier key with the token of each query, from the first key on; NONE where there is none.

    Negative where a cache has dropped that key.
    """
    B, _, T, S = call.sizes
    assert call.origin.tokens is not None
    at = (torch.arange(T, device=call.device) + call.shift).expand(B, T)
    tokens, dropped = call.origin.tokens.to(call.device), 0
    if call.origin.dropped is not None:
        dropped = call.origin.dropped.shape[1]
        tokens = torch.cat([call.origin.dropped.to(call.device), tokens], 1)
    known = _known(tokens)
    if "last" not in known:  # once for texts that are all the same row
        known["last"] = _last_occurrence(tokens[:1] if tokens.stride(0) == 0 else tokens)
    last = known["last"].expand(B, dropped + S).gather(1, dropped + at.clamp(min=0)) - dropped
    return torch.where((last >= first) & (last >= -dropped) & (at >= 0), last, NONE)


def earlier_from_first_key(call: WatchedCall) -> Tensor:
    """earlier_occurrence() with key 0 as the first, int32, computed once for all layers of a forward."""
    assert call.origin.tokens is not None
    known = _known(call.origin.tokens) if call.origin.dropped is None else {}
    place = (call.device, call.sizes, call.origin.extra)
    if place not in known:
        known[place] = earlier_occurrence(call, 0).int()
    return known[place]


def _known(tokens: Tensor) -> dict[object, Tensor]:
    """What was computed from these ids: all layers of a forward have one tensor. Forgotten where its values change."""
    if tokens.is_inference():  # which counts no versions
        return {}
    made: tuple[int, dict[object, Tensor]] | None = vars(tokens).get("_regard_known")
    if made is None or made[0] != tokens._version:
        made = vars(tokens)["_regard_known"] = tokens._version, {}
    return made[1]


def _last_occurrence(tokens: Tensor) -> Tensor:
    """(B, S): the last earlier key with the same token, −1 where there is none.

    >>> _last_occurrence(torch.tensor([[5, 7, 5, 5, 7]]))
    tensor([[-1, -1,  0,  2,  1]])
    """
    order = tokens.argsort(dim=-1, stable=True)  # equal tokens side by side, in the order of the text
    ordered = tokens.gather(-1, order)
    before = torch.full_like(order, -1)
    before[:, 1:] = torch.where(ordered[:, 1:] == ordered[:, :-1], order[:, :-1], -1)
    return torch.empty_like(before).scatter_(-1, order, before)
