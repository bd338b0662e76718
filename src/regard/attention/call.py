"""One attention call as one value, shared by attend(), its observers, the kernels and regard.watch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.masks import EVERYTHING, Mask


@dataclass(frozen=True, kw_only=True)
class QK:
    """What decides the weights of one attention: queries, keys, and what is added to their scores or hidden.

    >>> q = k = torch.zeros(2, 3, 5, 7)
    >>> QK(q=q, k=k, scale=7**-0.5).sizes
    (2, 3, 5, 5)

    weights = softmax(scale · q · kᵀ + bias − slope · distance, hidden keys at −∞)
    """

    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, Hkv, S, D); Hkv divides H
    mask: Mask = EVERYTHING
    scale: float = 1.0
    bias: Tensor | None = None  # float, broadcasts to (B, H, T, S); may hide a key (support/hidden_scores.py)
    alibi: Tensor | None = None  # (H,) slopes

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(B, H, T, S)."""
        B, H, T, _ = self.q.shape
        return B, H, T, self.k.shape[2]

    @property
    def shift(self) -> int:
        """Query i is at key position i + shift: the last query is at the last key."""
        return self.k.shape[2] - self.q.shape[2]

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.q.device


@dataclass(frozen=True, kw_only=True)
class Call(QK):
    """The inputs of one attention: what decides its weights, and the values that they mix.

    >>> q = k = v = torch.zeros(2, 3, 5, 7)
    >>> Call(q=q, k=k, v=v).sizes
    (2, 3, 5, 5)

    out = dropout(weights) · v
    """

    v: Tensor  # (B, Hkv, S, Dv)
    dropout: float = 0.0

    @property
    def qkv(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v."""
        return self.q, self.k, self.v
