"""Where the queries of a call stand among its keys, and how that is known.

The last query is at the last key in one text that attends to itself, with or without a cache. Attention in blocks, of
chosen tokens or to pooled keys has no such order; there nothing that compares positions is measured.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regard.heads.calls.basis import FROM_CALL, FROM_MASK, Fact, assumed, unknown
from regard.heads.calls.call import WatchedCall
from regard.heads.calls.score_origin import Memory
from regard.heads.calls.visibility import is_counted_by_mask, row_tiles, visible_tile
from regard.heads.inputs.module_call import NO_SOURCE, Given, KeySource
from regard.heads.inputs.row_relation import Relation

OF_FEATURES = "its weights are between features, not between tokens"


def has_length(value: Any, count: int) -> bool:
    """May this argument be so many tokens? (B, T), (B, T, E), or an image, (B, …, E)."""
    if not isinstance(value, Tensor) or value.is_nested or value.dim() < 2:
        return False
    shape = value.shape
    return count in (shape if len(shape) == 2 else shape[:-1]) or math.prod(shape[1:-1]) == count


def are_features(shape: tuple[int, ...], queries: Memory, given: Given) -> bool:
    """Are the rows and columns of weights (…, T, S) the features of a head, each a vector over the tokens of a text?

    Where a head has as many features as the text has tokens, memory tells: features lie side by side.
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
    (B, _, T, S), shape = call.sizes, given.shape
    is_image = len(shape) == 4 and S in (math.prod(shape[1:3]), math.prod(shape[2:]))  # of S places
    return not shape or (given.texts_of(T) == B and (T == S or not is_image))


def positions_of(
    call: WatchedCall,
    given: Given,
    is_known: bool,
    source: KeySource = NO_SOURCE,
    outer: KeySource = NO_SOURCE,
    relation: Relation | None = None,
) -> Fact:
    """How the positions of queries among keys are known.

    is_known: from the token ids. source, outer: other texts that the module, and the one around it, were given.
    relation: have queries and keys the same tokens, where tensors are followed?
    """
    B, _, T, S = call.sizes
    if call.origin.across or call.origin.extra or is_known:
        return FROM_CALL
    if source.twin and S == T:
        return assumed(f"queries and keys are the same text; the module was given two inputs of {T} tokens")
    attend = attending(call)
    if not whole_text(call, given):
        if S == T and math.prod(given.shape[:-1]) == B * T:
            return assumed(f"queries and keys are the same {T} tokens, in {B} blocks")
        return unknown(f"{B} × {attend}, computed from an input of {' × '.join(map(str, given.shape))}")
    if S == T:
        by_length = assumed("queries and keys are the same text, as they are as many")
        return by_length if relation is Relation.UNKNOWN else FROM_CALL
    if S in given.keys:
        return FROM_CALL
    if S > T and (source.name or outer.name):
        return unknown(f"{attend}, which may be of two texts")
    return _of_more_keys(call, given) if S > T else unknown(attend)


def _of_more_keys(call: WatchedCall, given: Given) -> Fact:
    """How positions are known where there are more keys than queries, and no cache of as many."""
    if _ends_on_diagonal(call):
        return FROM_MASK
    if given.cached and not given.keys:
        if not _sees_last_key(call):
            return unknown(f"{attending(call)}, the last of which is hidden: the cache may have room for more")
        return assumed("the last query stands at the last key; the cache does not say how many keys it has")
    return unknown(attending(call))


def attending(call: WatchedCall) -> str:
    """5 queries attend to 11 keys."""
    _, _, T, S = call.sizes
    return f"{T} {('queries attend', 'query attends')[T == 1]} to {S} key{'s' * (S != 1)}"


def _sees_last_key(call: WatchedCall) -> bool:
    """May the last query of any text see the last key?"""
    return bool(visible_tile(call, torch.tensor([call.sizes[2] - 1], device=call.device))[..., -1].any())


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
