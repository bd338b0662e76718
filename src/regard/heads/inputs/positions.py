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

from regard.heads.calls.basis import FROM_CALL, FROM_MASK, Fact, assumed, unknown
from regard.heads.calls.call import Args, Kwargs, WatchedCall
from regard.heads.calls.score_origin import Memory
from regard.heads.calls.visibility import is_counted_by_mask, row_tiles, visible_tile
from regard.heads.inputs.key_source import NO_SOURCE, KeySource
from regard.support.vocabulary import CACHES


class Given(NamedTuple):
    """What the module around a call was given: the shape of its first tensor, and whether there is a cache."""

    shape: tuple[int, ...] = ()
    cached: bool = False

    def texts_of(self, T: int) -> int | None:
        """How many texts of T tokens this is; None where it is none.

        (T, E), (B, T, E), (T, B, E), an image (B, rows, columns, E) or (B, E, rows, columns), or heads (B, H, T, D).
        """
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

    def is_image_of(self, S: int) -> bool:
        """Is this an image of S places, (B, rows, columns, E) or (B, E, rows, columns)?"""
        return len(self.shape) == 4 and S in (math.prod(self.shape[1:3]), math.prod(self.shape[2:]))


OF_FEATURES = "its weights are between features, not between tokens"
IMAGES = {"pixel_values", "pixel_values_videos", "images", "image"}


def given_to(args: Args, kwargs: Kwargs) -> Given:
    """The shape of the first tensor among the arguments; token ids count as vectors of one number."""
    cached = any(kwargs.get(name) is not None for name in CACHES) if kwargs else False
    for value in args or kwargs.values():
        if isinstance(value, Tensor) and value.dim() and not value.is_nested:
            shape = tuple(value.shape)
            return Given(shape if value.is_floating_point() else (*shape, 1), cached)
    return Given((), cached)


def has_length(value: Any, count: int) -> bool:
    """May this argument be so many tokens? (B, T), (B, T, E), or an image, (B, …, E)."""
    if not isinstance(value, Tensor) or value.is_nested or value.dim() < 2:
        return False
    shape = value.shape
    return count in (shape if len(shape) == 2 else shape[:-1]) or math.prod(shape[1:-1]) == count


def is_given_image(args: Args, kwargs: Kwargs) -> bool:
    """Is a module called with an image and with no token ids?"""
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    if any(kwargs.get(name) is not None for name in IMAGES):
        return not any(t.dtype in (torch.int64, torch.int32) for t in tensors)
    if not tensors or tensors[0].is_nested or tensors[0].dim() != 4:
        return False
    _, channels, rows, columns = tensors[0].shape
    return channels in (1, 3) and rows == columns


def are_features(shape: tuple[int, ...], queries: Memory, given: Given) -> bool:
    """Are the rows and columns of weights (…, T, S) the features of a head, each a vector over the tokens of a text?

    Where a head has as many features as the text has tokens, memory tells: features lie side by side.

    >>> are_features((2, 4, 8, 8), Memory((2, 4, 8, 16), (512, 8, 1, 32)), Given((2, 16, 32)))  # 4 heads of 8 features
    True
    """
    heads, (T, S) = shape[-3] if len(shape) > 2 else 1, shape[-2:]
    width, strides = queries.shape[-1], queries.strides[-2:]
    if T != S or heads * T not in given.shape[1:]:
        return False
    if width == T:
        return len(given.shape) == 3 and heads * T == given.shape[-1] and strides[0] == 1 < strides[1]
    return given.texts_of(width) is not None and given.texts_of(T) is None


def whole_text(call: WatchedCall, given: Given) -> bool:
    """Are the queries of this call all tokens that its module was given? True where nothing tells."""
    B, _, T, S = call.sizes
    return not given.shape or (given.texts_of(T) == B and (T == S or not given.is_image_of(S)))


def positions_of(
    call: WatchedCall, given: Given, is_known: bool, source: KeySource = NO_SOURCE, outer: KeySource = NO_SOURCE
) -> Fact:
    """How the positions of queries among keys are known.

    is_known: from the token ids. source, outer: other texts that the module, and the one around it, were given.
    """
    B, _, T, S = call.sizes
    if call.origin.across or call.origin.extra or is_known:
        return FROM_CALL
    if source.twin and S == T:
        return assumed(f"queries and keys are the same text; the module was given two inputs of {T} tokens")
    attend = f"{T} {'query attends' if T == 1 else 'queries attend'} to {S} key{'s' * (S != 1)}"
    if not whole_text(call, given):
        if S == T and math.prod(given.shape[:-1]) == B * T:
            return assumed(f"queries and keys are the same {T} tokens, in {B} blocks")
        return unknown(f"{B} × {attend}, computed from an input of {' × '.join(map(str, given.shape))}")
    if S == T or (S > T and given.cached):
        return FROM_CALL
    if S < T or source.name or outer.name:
        return unknown(attend if S < T else f"{attend}, which may be of two texts")
    return FROM_MASK if _ends_on_diagonal(call) else assumed("the last query stands at the last key")


def _ends_on_diagonal(call: WatchedCall) -> bool:
    """Does the last key that each query may see follow the one of the query before, up to the last key of all?"""
    _, _, T, S = call.sizes
    if call.attention.mask.parts().causal:
        return True
    if T < 2 or is_counted_by_mask(call.attention):
        return False
    keys = torch.arange(S, device=call.device)
    for rows in row_tiles(call):
        last = torch.where(visible_tile(call, rows), keys, -1).amax(-1)
        if not bool(((last == rows + S - T) | (last < 0)).all()):
            return False
    return True
