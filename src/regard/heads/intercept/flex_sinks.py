"""Attention sinks that are applied after FlexAttention: its output is multiplied by a share of its log-sum-exp.

A sink takes weight from every key. With FlexAttention a model multiplies the output of the kernel by
exp(lse − log(exp(lse) + exp(sink))), so the weights are smaller by this factor. It is found by following the LSE that the
kernel returned up to the product with the output.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.heads.calls.basis import Fact, How
from regard.heads.calls.call import Attention, Origin, OwnWeights, WatchedCall
from regard.heads.calls.visibility import may_see
from regard.heads.intercept.flex import LIMIT
from regard.heads.intercept.softmax import PERMUTE, RESHAPE_OR_CAST, SLICE

VIEWS = {*PERMUTE, *RESHAPE_OR_CAST, *SLICE}
MULTIPLY = ("mul", "multiply", "__mul__", "__rmul__")


class FlexSinks:
    """A call of FlexAttention, and what the model does with its output and its LSE.

    depth: how many modules were running. unknown: why its weights cannot be derived any more.
    """

    def __init__(self, call: WatchedCall, out: Tensor, lse: Any, depth: int) -> None:
        self.call, self.depth, self.unknown = call, depth, ""
        self._out, self._views = out, [out]  # views: the output, and copies of it in another layout
        self._shares = [lse] if isinstance(lse, Tensor) else []  # the LSE, and all that was computed from it

    def follow(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A function was called."""
        tensors = _tensors((*args, *kwargs.values()))
        shares = [t for t in tensors if any(t is share for share in self._shares)]
        views = any(t is view for t in tensors for view in self._views)
        if not isinstance(result, Tensor) or not (shares or views):
            return
        if not views:
            self._shares.append(result)
            return
        if not shares:
            if name in VIEWS:
                self._views.append(result)
            return
        is_out = any(t is self._out for t in tensors)
        if is_out and name in MULTIPLY and shares[0].shape == (*self._out.shape[:3], 1):
            self._scale_weights(shares[0].detach())
            self._out, self._views = result, [result]
        else:
            self.unknown = f"its output is combined with its log-sum-exp by {name}"

    def _scale_weights(self, factor: Tensor) -> None:
        B, H, T, S = self.call.sizes
        if B * H * T * S > LIMIT:
            self.unknown = f"its attention sinks need all {B} × {H} × {T} × {S} weights; watch a shorter text"
            return
        weights = written_out(self.call.attention) * factor.float()
        sums = weights.sum(-1)
        low, high = float(sums.min()), float(sums.max())
        fact = Fact(How.CALL, f"rows sum to {low:.2f} – {high:.2f}; the rest is on a key that has no value")
        basis = replace(self.call.origin.basis, weights=fact)
        self.call = WatchedCall(OwnWeights(weights, self.call.attention.mask), Origin(basis=basis))


@torch.no_grad()
def written_out(attention: Attention) -> Tensor:
    """(B, H, T, S): the weights of an attention; 0 where a row sees nothing."""
    if isinstance(attention, OwnWeights):
        return attention.weights.float()
    _, H, T, S = attention.sizes
    k = attention.k.repeat_interleave(H // attention.k.shape[1], 1)
    scores = attention.q.float() @ k.float().mT * attention.scale
    scores = scores.masked_fill(~attention.mask.dense(T, S, attention.device), -torch.inf)
    return scores.softmax(-1).masked_fill(~may_see(scores).any(-1, keepdim=True), 0)


def _tensors(values: tuple[Any, ...]) -> list[Tensor]:
    found = []
    for value in values:
        found += [one for one in (value if isinstance(value, (tuple, list)) else (value,)) if isinstance(one, Tensor)]
    return found
