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
from regard.heads.calls.call import WatchedCall
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

    @property
    def rows(self) -> int:
        """How many tokens it has in all."""
        return math.prod(self.shape[:-1])

    def __str__(self) -> str:
        return " × ".join(map(str, self.shape))


OF_FEATURES = "its weights are between features, not between tokens"
IMAGES = {"pixel_values", "pixel_values_videos", "images", "image"}


def given_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
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
    shape = tuple(value.shape)
    return count in (shape if len(shape) == 2 else shape[:-1]) or math.prod(shape[1:-1]) == count


def is_given_image(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is a module called with an image and with no token ids?"""
    if not IMAGES.isdisjoint(kwargs) and any(kwargs.get(name) is not None for name in IMAGES):
        values = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and not value.is_nested)
        return not any(value.dtype in (torch.int64, torch.int32) for value in values)
    first = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
    if first is None or first.is_nested or first.dim() != 4:
        return False
    return first.shape[1] in (1, 3) and first.shape[2] == first.shape[3]


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
    if whole_text(call, given):
        return _positions_in_text(call, given, bool(source.name or outer.name))
    if S == T and given.rows == B * T:
        return assumed(f"queries and keys are the same {T} tokens, in {B} blocks")
    return unknown(f"{B} × {_attend(T, S)}, computed from an input of {given}")


def _positions_in_text(call: WatchedCall, given: Given, may_be_two: bool) -> Fact:
    """Where all tokens of a text are queries; may_be_two: the keys may be of another text."""
    _, _, T, S = call.sizes
    if S == T or (S > T and given.cached):
        return FROM_CALL
    if S < T:
        return unknown(_attend(T, S))
    if may_be_two:
        return unknown(f"{_attend(T, S)}, which may be of two texts")
    return FROM_MASK if _ends_on_diagonal(call) else assumed("the last query stands at the last key")


def _attend(T: int, S: int) -> str:
    return f"{T} {'query attends' if T == 1 else 'queries attend'} to {S} key{'s' * (S != 1)}"


def _ends_on_diagonal(call: WatchedCall) -> bool:
    """Does the last key that each query may see follow the one of the query before, up to the last key of all?"""
    _, _, T, S = call.sizes
    if call.attention.mask.parts().causal:
        return True
    if T < 2 or is_counted_by_mask(call.attention):
        return False
    keys = torch.arange(S, device=call.device)
    for rows in row_tiles(call):
        tile = visible_tile(call, rows)
        last = torch.where(tile, keys, -1).amax(-1)
        if not bool(((last == rows + S - T) | (last < 0)).all()):
            return False
    return True
