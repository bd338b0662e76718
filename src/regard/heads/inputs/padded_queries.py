"""Which queries the mask of a call shows to be padding. T = S: query i is at the position of key i.

A key that nobody may see says nothing about the query at its place: under a strictly causal mask that is the last
token, and in sparse attention any token that no query chose. Padding is what the model was given as padding, a mask
with one row for all queries; and what sees nothing and is seen by nobody. A mask that is written out, T × S, is padding
where it is all keys, or all earlier ones, except for the same keys in every row. Such a mask may also be a pattern of
the model, so texts must differ in it, or the model must have been called with a mask of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.masks import And, Causal, Documents, Everything, Mask, Padding, Window, to_four_axes
from regard.heads.calls.call import OwnWeights, WatchedCall
from regard.heads.calls.visibility import row_tiles, visible_tile
from regard.heads.inputs.user_texts import for_batch
from regard.support.hidden_scores import may_see_among

_SEES_ITSELF = (Everything, Causal, Window, Documents)  # masks in which each query sees the key at its own position


def real_queries(call: WatchedCall, given: Callable[[Tensor], bool] = lambda columns: False) -> Tensor | None:
    """(B or 1, S or 1), False = padding; None where no mask hides a key from all queries.

    given: was the model called with a mask that hides these keys, False in (B, S)?
    """
    attention = call.attention
    rules = [rule for rule in _all_of(attention.mask) if not isinstance(rule, _SEES_ITSELF)]
    if isinstance(attention, OwnWeights):
        return by_evidence(_dense(call), given) if rules else None
    bias = None if attention.bias is None else _once(to_four_axes(attention.bias))
    one_bias = bias is None or (bias.shape[1:3] == (1, 1) and bias.shape[0] == call.sizes[0])
    if one_bias and all(isinstance(rule, Padding) for rule in rules):
        real = _of_one_row(rules, call)
        if bias is None:
            return real
        visible = may_see_among(bias[:, 0, 0])
        return visible if real is None else real & visible
    real = by_evidence(_dense(call), given)
    padding = _of_one_row([rule for rule in rules if isinstance(rule, Padding)], call)
    return real if padding is None else real & padding


def by_evidence(seen: Tensor, given: Callable[[Tensor], bool]) -> Tensor:
    """(B, S), False = padding, from which keys each query may see in any head, (B, T, S)."""
    columns, rows = seen.any(1), seen.any(2)
    same = (seen == columns[:, None]).flatten(1).all(1)
    earlier = (seen == (columns[:, None] & torch.ones_like(seen[0]).tril())).flatten(1).all(1)
    trusted = (columns != columns[:1]).any() | given(columns)
    return columns | (rows & ~((same | earlier) & trusted)[:, None])


def hides_keys(arguments: Iterable[Any], columns: Tensor) -> bool:
    """Was a module called with a mask that hides these keys, False in (B, S), by whatever convention?"""
    B, S = columns.shape
    for t in arguments:
        if isinstance(t, Tensor) and 2 <= t.dim() <= 4 and t.numel() == B * S and (t.shape[0], t.shape[-1]) == (B, S):
            mask = t.detach().reshape(B, S).to(columns.device)
            if not (mask > 1).any() and any(torch.equal(columns, one) for one in (mask > 0, mask <= 0, mask >= 0)):
                return True
    return False


def last_queries(real: Tensor, length: int | None, call: WatchedCall, total: int | None = None) -> Tensor | None:
    """The model's padding mask, of all keys so far or of the new ones, for the queries of this call.

    total: how many keys there are so far, where that is known: a static cache, and its mask, may have slots after them.
    """
    B, _, T, _ = call.sizes
    fitted = for_batch(real, B)
    if fitted is None or fitted.shape[1] < T or T not in (length, fitted.shape[1]):
        return None
    end = fitted.shape[1] if total is None or length != T else min(total, fitted.shape[1])
    return fitted[:, end - T : end]


def in_blocks(real: Tensor, call: WatchedCall) -> Tensor | None:
    """The model's padding mask, (B, n), for a call with its text in blocks, which are filled up at the end."""
    (B, _, T, _), (texts, n) = call.sizes, real.shape
    if not 0 < T < n:
        return None  # its queries are more than this text
    blocks = -(-n // T)
    return F.pad(real, (0, blocks * T - n)).reshape(B, T) if texts * blocks == B else None


def _of_one_row(rules: list[Mask], call: WatchedCall) -> Tensor | None:
    if not rules:
        return None
    keys = torch.arange(call.sizes[3], device=call.device)
    return reduce(torch.logical_and, [rule.tile(keys[:1], keys, 0).flatten(0, -2) for rule in rules])


def _dense(call: WatchedCall) -> Tensor:
    """(B or 1, T, S): which keys each query may see, in any head."""
    return torch.cat([visible_tile(call, rows).any(1) for rows in row_tiles(call)], 1)


def _all_of(mask: Mask) -> list[Mask]:
    return [*_all_of(mask.left), *_all_of(mask.right)] if isinstance(mask, And) else [mask]


def _once(t: Tensor) -> Tensor:
    """The tensor without the copies along expanded axes of heads and queries."""
    return t[:, : 1 if t.stride(1) == 0 else None, : 1 if t.stride(2) == 0 else None]
