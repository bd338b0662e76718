"""What kernels are told: the attention whose weights are wanted, and who sees whom in the few forms they know."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.call import Call
from regard.attention.masks import Mask, Padding


@dataclass(frozen=True)
class Rule:
    """Who sees whom, for queries 0 … T−1 of one launch; query i stands at key position i + shift."""

    shift: int = 0
    causal: bool = False
    window: int | None = None
    keys: Tensor | None = None  # (B, S) bool
    dense: Tensor | None = None  # (B, H, T, S) bool, as wide as it differs; True = may attend
    bias: Tensor | None = None  # (B, H, T, S) float, as wide as it differs
    slopes: Tensor | None = None  # (H,) of ALiBi

    @property
    def plain(self) -> bool:
        """Is nothing hidden but the future, and nothing added?"""
        return all(t is None for t in (self.window, self.keys, self.dense, self.bias, self.slopes))

    def rows(self, first: int, last: int, rest: Mask | None, S: int, device: torch.device) -> Rule:
        """The rule for a part of the queries, with `rest`, which kernels do not know, written out for them."""
        dense = None
        if rest is not None:
            rows, cols = torch.arange(first, last, device=device), torch.arange(S, device=device)
            dense = rest.tile(rows, cols, self.shift)
            dense = dense.reshape((1,) * (4 - dense.dim()) + tuple(dense.shape))
            dense = dense.expand(*dense.shape[:2], last - first, S).contiguous()
        bias = self.bias
        if bias is not None and bias.shape[2] > 1:
            bias = bias[:, :, first:last]
        return replace(self, shift=self.shift + first, dense=dense, bias=bias)


def rule_of(attention: Call) -> tuple[Rule, Mask | None]:
    """An attention's mask in the kernels' terms, and what is left of it."""
    B, _, T, S = attention.sizes
    parts = attention.mask.parts()
    keys = None
    if parts.keys is not None:
        cols = torch.arange(S, device=attention.device)
        keys = Padding(parts.keys).tile(cols[:1], cols, 0)[:, 0, 0].expand(B, S).contiguous()
    bias = attention.bias
    if bias is not None:
        bias = bias.reshape((1,) * (4 - bias.dim()) + tuple(bias.shape))
    slopes = None if attention.alibi is None else attention.alibi.float().to(attention.device)
    return Rule(S - T, parts.causal, parts.window, keys, None, bias, slopes), parts.rest
