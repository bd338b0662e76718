"""A recorded call with the texts of its batch in another order, as beam search reorders them between its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from regard.attention.mask import take_texts
from regard.heads.calls.call import TextIds, WatchedCall

_BY_TEXT = ("q", "k", "weights", "lse", "real", "tokens", "fingerprint", "context")


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
    names = [*_BY_TEXT, *(["bias"] if call.bias is not None and call.bias.dim() == 4 else [])]
    changed: dict[str, Any] = {name: take_texts(t, order) for name in names if (t := getattr(call, name)) is not None}
    for name in ("query_text", "key_text"):
        if (text := getattr(call, name)) is not None:
            real = None if text.real is None else take_texts(text.real, order)
            changed[name] = TextIds(take_texts(text.ids, order), real)
    return call.changed(mask=call.mask.in_order(order.to(call.device), *call.sizes[2:]), **changed)
