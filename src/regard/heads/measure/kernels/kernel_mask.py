"""What kernels take: the attention whose weights are wanted, and its mask in the few forms they can compute."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import Mask, key_padding, to_four_axes


@dataclass(frozen=True)
class KernelMask:
    """Which keys are hidden from queries 0 … T−1 of one launch, and what is added to their scores.

    Query i is at key position i + shift.
    """

    shift: int = 0
    causal: bool = False
    window: int | None = None
    keys: Tensor | None = None  # (B, S) bool
    dense: Tensor | None = None  # bool, broadcasts to (B, H, T, S); True = may attend
    bias: Tensor | None = None  # float, broadcasts to (B, H, T, S)
    slopes: Tensor | None = None  # (H,) of ALiBi

    def part(self, first: int, last: int, rest: Mask | None, S: int, device: torch.device) -> KernelMask:
        """The mask of queries [first, last), with `rest`, which kernels cannot compute, written out as a tensor."""
        if first == 0 and rest is None and self.bias is None:
            return self
        dense = None
        if rest is not None:
            rows, cols = torch.arange(first, last, device=device), torch.arange(S, device=device)
            dense = to_four_axes(rest.tile(rows, cols, self.shift))
            dense = dense.expand(*dense.shape[:2], last - first, S).contiguous()
        bias = self.bias
        if bias is not None and bias.shape[2] > 1:
            bias = bias[:, :, first:last]
        return replace(self, shift=self.shift + first, dense=dense, bias=bias)


def mask_for_kernels(attention: QK) -> tuple[KernelMask, Mask | None]:
    """An attention's mask as kernels take it, and the rest of it, which they cannot compute."""
    B, _, T, S = attention.sizes
    parts = attention.mask.parts()
    keys = None
    if parts.keys is not None:
        keys = key_padding(parts.keys, S, attention.device).expand(B, S).contiguous()
    bias = None if attention.bias is None else to_four_axes(attention.bias)
    slopes = None if attention.alibi is None else attention.alibi.float().to(attention.device)
    return KernelMask(S - T, parts.causal, parts.window, keys, None, bias, slopes), parts.rest
