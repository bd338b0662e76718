"""Calls of one form are measured together, as more texts of one batch: operations cost as much for one call as for ten.

All layers of most models have the same form. The calls wait until the forward is over, a call of another form comes, or
they are many. Their queries and keys are copies, which are kept in any case. Long texts do not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import CAUSAL, EVERYTHING
from regard.heads.calls.call import WatchedCall, changed
from regard.heads.measure import statistics
from regard.heads.measure.kernels.exact_weights import FEW

# Up to so many weights, and bytes of queries and keys: beyond, computing takes longer than launching, on a GPU.
WEIGHTS, BYTES = 1 << 30, 256 * 2**20


class Form(NamedTuple):
    """What calls that are measured together have in common."""

    queries: torch.Size
    keys: torch.Size
    dtype: torch.dtype
    device: torch.device
    stream: torch.cuda.Stream | None  # on which the copies are made
    others: tuple[object, ...]  # whatever else must be equal

    @property
    def most_calls(self) -> int:
        """How many calls may be measured together."""
        B, H, T, _ = self.queries
        weights = max(B * H * T * self.keys[2], 1)
        if self.device.type == "cpu":
            return FEW // weights
        size = (self.queries.numel() + self.keys.numel()) * self.dtype.itemsize
        return min(WEIGHTS // weights, BYTES // max(size, 1), statistics.MOST_PROGRAMS // max(B * H, 1))


def form_of(call: WatchedCall) -> Form | None:
    """The form of a call; None where it is measured by itself."""
    attention, origin = call.attention, call.origin
    if not isinstance(attention, QK) or call.device.type not in ("cpu", "cuda"):
        return None
    q, k, mask = attention.q, attention.k, attention.mask
    if not (mask is CAUSAL or mask is EVERYTHING):
        return None
    if any(t is not None for t in (attention.bias, attention.alibi, origin.dropped)):
        return None
    stream = torch.cuda.current_stream(q.device) if q.is_cuda else None
    known = tuple(t is not None for t in (call.lse, origin.real, origin.tokens, origin.first))
    others = (k.dtype, attention.scale, mask, known, call.has_positions, origin.across, origin.extra)
    return Form(q.shape, k.shape, q.dtype, q.device, stream, others)


class WaitingCalls:
    """Calls of one form that are not measured yet."""

    def __init__(self) -> None:
        self.calls: list[WatchedCall] = []
        self._form: Form | None = None

    def add(self, call: WatchedCall) -> bool:
        """Let this call wait; False where it cannot be measured together with those that wait, or with any."""
        form = form_of(call)
        if (
            form is None
            or form.most_calls < 2
            or (self.calls and (form != self._form or len(self.calls) >= form.most_calls))
        ):
            return False
        self.calls.append(call)
        self._form = form
        return True

    def measured(self, collect: frozenset[str]) -> list[tuple[WatchedCall, dict[str, Tensor]]]:
        """All calls with their statistics, as statistics.measure() has them; after that, none waits."""
        calls, form = self.calls, self._form
        if form is None:
            return []
        if form.stream is None:
            together = statistics.measure(_joined(calls), collect)
        else:
            with torch.cuda.stream(form.stream):
                together = statistics.measure(_joined(calls), collect)
            torch.cuda.current_stream(form.device).wait_stream(form.stream)
        self.calls, self._form = [], None  # only now: after an error, they still wait
        parts = [value.unflatten(0, (len(calls), -1)).unbind() for value in together.values()]
        each = zip(*parts, strict=True)
        return [(call, dict(zip(together, own, strict=True))) for call, own in zip(calls, each, strict=True)]


def _joined(calls: Sequence[WatchedCall]) -> WatchedCall:
    """One call with the texts of all."""
    first, origins = calls[0], [call.origin for call in calls]
    known = _concatenated(origins, ("real", "first"))
    tokens = first.origin.tokens
    if tokens is not None:
        shared = first.sizes[0] == 1 and all(origin.tokens is tokens for origin in origins)
        known["tokens"] = tokens.expand(len(calls), -1) if shared else _concatenated(origins, ("tokens",))["tokens"]
    attention = changed(first.attention, **_concatenated([call.attention for call in calls], ("q", "k")))
    lse = _concatenated(calls, ("lse",))
    return changed(first, attention=attention, origin=changed(first.origin, **known), **lse)


def _concatenated(values: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The tensors of these fields, those of all values one after another, where the first has them."""
    there = [name for name in names if getattr(values[0], name) is not None]
    return {name: torch.cat([getattr(value, name) for value in values]) for name in there}
