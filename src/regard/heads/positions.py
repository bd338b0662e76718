"""Where the queries of a call stand among its keys, and how that is known.

The last query is at the last key in one text that attends to itself, with or without a cache. Attention in blocks,
attention of chosen tokens and attention to pooled keys have no such order; there nothing that compares positions is
measured.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.heads.basis import FROM_CALL, FROM_MASK, Fact, assumed, unknown
from regard.heads.call import WatchedCall
from regard.heads.visibility import row_tiles, visible_tile


class Given(NamedTuple):
    """What the module around a call was given: the shape of its first tensor, and whether there is a cache."""

    shape: tuple[int, ...] = ()
    cached: bool = False

    def texts_of(self, T: int) -> int | None:
        """How many texts of T tokens this is; None where it is none."""
        match self.shape:
            case ():
                return None
            case (length,) | (length, _) if length == T:
                return 1
            case (texts, *inside, _) if inside and (math.prod(inside) == T or inside[-1] == T):
                return texts
            case (length, texts, _) if length == T:
                return texts
            case (texts, _, *inside) if len(inside) > 1 and math.prod(inside) == T:
                return texts
        return None

    @property
    def rows(self) -> int:
        """How many tokens it has in all."""
        return math.prod(self.shape[:-1])


CACHES = {"past_key_values", "past_key_value", "layer_past", "cache", "kv_cache"}
IMAGES = {"pixel_values", "pixel_values_videos", "images", "image"}


def given_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
    """The shape of the first tensor among the arguments; token ids count as vectors of one number."""
    cached = not CACHES.isdisjoint(kwargs) and any(kwargs.get(name) is not None for name in CACHES)
    for value in args or kwargs.values():
        if isinstance(value, Tensor) and value.dim() and not value.is_nested:
            shape = tuple(value.shape)
            return Given(shape if value.is_floating_point() else (*shape, 1), cached)
    return Given((), cached)


def has_length(value: Any, count: int) -> bool:
    """May this argument be so many tokens? (B, T), (B, T, E), or an image, (B, …, E)."""
    if not isinstance(value, Tensor) or value.is_nested or value.dim() < 2:
        return False
    shape = tuple(value.shape)
    return count in (shape if len(shape) == 2 else shape[:-1]) or math.prod(shape[1:-1]) == count


def is_given_image(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is a module called with an image and with no token ids?"""
    if not IMAGES.isdisjoint(kwargs) and any(kwargs.get(name) is not None for name in IMAGES):
        values = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and not value.is_nested]
        return not any(value.dtype in (torch.int64, torch.int32) for value in values)
    first = next((v for v in (*args, *kwargs.values()) if isinstance(v, Tensor) and not v.is_nested), None)
    return first is not None and first.dim() == 4 and first.shape[1] in (1, 3) and first.shape[2] == first.shape[3]


def whole_text(call: WatchedCall, given: Given) -> bool:
    """Are the queries of this call all tokens that its module was given? True where nothing tells."""
    B, _, T, _ = call.sizes
    return not given.shape or given.texts_of(T) == B


def positions_of(call: WatchedCall, given: Given, is_known: bool) -> Fact:
    """How the positions of queries among keys are known; is_known: from the token ids of the call."""
    B, _, T, S = call.sizes
    S -= call.extra
    if call.across or is_known or call.extra:
        return FROM_CALL
    if whole_text(call, given):
        if S == T or (S > T and given.cached):
            return FROM_CALL
        if S > T:
            return FROM_MASK if _ends_on_diagonal(call) else assumed("the last query stands at the last key")
        return unknown(f"{T} queries attend to {S} keys")
    if S == T and given.rows == B * T:
        return assumed(f"queries and keys are the same {T} tokens, in {B} blocks")
    return unknown(f"a text of {given.rows} tokens is computed as {B} × {T} queries and {S} keys")


def _ends_on_diagonal(call: WatchedCall) -> bool:
    """Does the last key that each query may see follow the one of the query before, up to the last key of all?"""
    _, _, T, S = call.sizes
    if call.mask.parts().causal:
        return True
    if T < 2 or (call.bias is None and call.weights is None and call.mask.parts().rest is None):
        return False
    keys = torch.arange(S, device=call.device)
    for rows in row_tiles(call):
        tile = visible_tile(call, rows)
        last = torch.where(tile, keys, -1).amax(-1)
        if not bool(((last == rows + S - T) | (last < 0)).all()):
            return False
    return True
