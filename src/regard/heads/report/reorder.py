"""A recorded call with the texts of its batch in another order, as beam search reorders them between its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from regard.attention.masks import And, Causal, Dense, Documents, Everything, Mask, Not, Or, Padding, Window
from regard.heads.calls.call import TextIds, WatchedCall, changed


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

    def take(value: Any, *names: str) -> dict[str, Any]:
        return {n: take_texts(t, order, B) for n in names if (t := getattr(value, n, None)) is not None}

    numbers = take(call.attention, "q", "k", "weights") | {"mask": _mask_in_order(call.attention.mask, order, call)}
    bias = getattr(call.attention, "bias", None)
    if bias is not None and bias.dim() == 4:
        numbers["bias"] = take_texts(bias, order, B)
    known = take(call.origin, "real", "tokens", "fingerprint")
    for name in ("query_text", "key_text"):
        if (text := getattr(call.origin, name)) is not None:
            real = None if text.real is None else take_texts(text.real, order, B)
            known[name] = TextIds(take_texts(text.ids, order, B), real)
    attention, origin = changed(call.attention, **numbers), changed(call.origin, **known)
    return changed(call, attention=attention, origin=origin, **take(call, "lse", "context"))


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
