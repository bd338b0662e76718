"""A recorded call with the texts of its batch in another order, as beam search reorders them between its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from regard.attention.masks import take_texts
from regard.heads.calls.call import TextIds, WatchedCall, changed


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

    def take(value: Any, *names: str) -> dict[str, Any]:
        return {name: take_texts(t, order) for name in names if (t := getattr(value, name, None)) is not None}

    numbers = take(call.attention, "q", "k", "weights")
    numbers["mask"] = call.attention.mask.in_order(order.to(call.device), *call.sizes[2:])
    bias = getattr(call.attention, "bias", None)
    if bias is not None and bias.dim() == 4:
        numbers["bias"] = take_texts(bias, order)
    known = take(call.origin, "real", "tokens", "fingerprint")
    for name in ("query_text", "key_text"):
        if (text := getattr(call.origin, name)) is not None:
            known[name] = TextIds(**take(text, "ids", "real"))
    attention, origin = changed(call.attention, **numbers), changed(call.origin, **known)
    return changed(call, attention=attention, origin=origin, **take(call, "lse", "context"))
