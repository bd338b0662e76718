"""A recorded call with the texts of its batch in another order, as beam search reorders them between its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.attention.masks import And, Causal, Dense, Documents, Everything, Mask, Not, Or, Padding, Window
from regard.heads.calls.call import TextIds, WatchedCall

_BY_TEXT = ("q", "k", "weights", "lse", "real", "tokens", "fingerprint", "context")


def take_texts(t: Tensor, order: Tensor, B: int) -> Tensor:
    """A tensor (B, …) with its texts in this order; one that is the same for all texts stays.

    >>> import torch
    >>> take_texts(torch.tensor([[1, 2], [3, 4]]), torch.tensor([1, 1]), 2)
    tensor([[3, 4],
            [3, 4]])
    """
    return t[order.to(t.device)] if t.shape[0] == B else t


def latest_orders(count: int, orders: Sequence[tuple[int, Tensor]]) -> list[tuple[int, Tensor]]:
    """The numbers of the steps, of `count`, that must be reordered, and how, so that all have the order of the last.

    orders: the number of a step, and the rows that its texts have in the steps before it.

    >>> import torch
    >>> latest_orders(4, [(1, torch.tensor([1, 1, 0])), (3, torch.tensor([2, 0, 1]))])
    [(2, tensor([2, 0, 1])), (1, tensor([2, 0, 1])), (0, tensor([0, 1, 1]))]
    """
    left, order, result = list(orders), None, []
    for number in range(count - 1, -1, -1):
        while left and left[-1][0] > number:
            before = left.pop()[1]
            order = before if order is None else before[order]
        if order is not None:
            result.append((number, order))
    return result


def call_in_order(call: WatchedCall, order: Tensor) -> WatchedCall:
    """The call with its texts in this order: text i is what text order[i] was."""
    B = call.sizes[0]
    changed: dict[str, Any] = {
        name: take_texts(t, order, B) for name in _BY_TEXT if (t := getattr(call, name)) is not None
    }
    if call.bias is not None and call.bias.dim() == 4:
        changed["bias"] = take_texts(call.bias, order, B)
    for name in ("query_text", "key_text"):
        if (text := getattr(call, name)) is not None:
            real = None if text.real is None else take_texts(text.real, order, B)
            changed[name] = TextIds(take_texts(text.ids, order, B), real)
    return replace(call, mask=_mask_in_order(call.mask, order, call), **changed)


def _mask_in_order(mask: Mask, order: Tensor, call: WatchedCall) -> Mask:
    B, _, T, S = call.sizes
    match mask:
        case Everything() | Causal() | Window():
            return mask
        case Padding():
            return Padding(take_texts(mask.keep, order, B))
        case Documents():
            return mask if mask.ids.dim() < 2 else Documents(take_texts(mask.ids, order, B))
        case And() | Or():
            return type(mask)(_mask_in_order(mask.left, order, call), _mask_in_order(mask.right, order, call))
        case Not():
            return Not(_mask_in_order(mask.rule, order, call))
    seen = mask.seen if isinstance(mask, Dense) else mask.dense(T, S, call.device)
    return mask if seen.dim() < 3 else Dense(take_texts(seen, order, B))
