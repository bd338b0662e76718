"""One attention call as one value, shared by attend(), its observers, the kernels and regard.watch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.masks import EVERYTHING, Mask


@dataclass(frozen=True, kw_only=True)
class Call:
    """The inputs of one attention, or its weights where a model computed them explicitly.

    >>> q = k = v = torch.zeros(2, 3, 5, 7)
    >>> Call(q=q, k=k, v=v, scale=7**-0.5).sizes
    (2, 3, 5, 5)

    weights = softmax(scale · q · kᵀ + bias − slope · distance, hidden keys at −∞); out = dropout(weights) · v
    """

    q: Tensor | None = None  # (B, H, T, D)
    k: Tensor | None = None  # (B, Hkv, S, D); Hkv divides H
    v: Tensor | None = None  # (B, Hkv, S, Dv); not needed to compute weights
    mask: Mask = EVERYTHING
    scale: float = 1.0
    bias: Tensor | None = None  # float, broadcasts to (B, H, T, S); may hide a key (support/hidden_scores.py)
    alibi: Tensor | None = None  # (H,) slopes
    dropout: float = 0.0
    weights: Tensor | None = None  # (B, H, T, S), where the model computed them explicitly; then q, k and v are None

    @property
    def qkv(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of a call that has all three."""
        assert self.q is not None
        assert self.k is not None
        assert self.v is not None
        return self.q, self.k, self.v

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(B, H, T, S)."""
        if self.weights is not None:
            B, H, T, S = self.weights.shape
            return B, H, T, S
        assert self.q is not None
        assert self.k is not None
        B, H, T, _ = self.q.shape
        return B, H, T, self.k.shape[2]

    @property
    def shift(self) -> int:
        """Query i is at key position i + shift: the last query is at the last key."""
        _, _, T, S = self.sizes
        return S - T

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        tensor = self.q if self.weights is None else self.weights
        assert tensor is not None
        return tensor.device
