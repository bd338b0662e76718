"""A call: one attention of a model, with all that is needed to compute every weight of it again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.masks import EVERYTHING, Mask

# A score this low is a hidden key. Models add −∞ or the lowest number of a type, float16's being the highest of these.
HIDES = torch.finfo(torch.float16).min / 2


@dataclass(frozen=True)
class WatchedCall:
    """What went into one attention, or the weights themselves where the model wrote them out.

    weights = softmax(scale · q · kᵀ + bias − slope · distance, hidden keys at −∞)
    """

    module: str  # the module it ran in, by its dotted name; "" where the model itself made the call
    q: Tensor | None = None  # (B, H, T, D)
    k: Tensor | None = None  # (B, Hkv, S, D); Hkv divides H
    scale: float = 1.0
    mask: Mask = EVERYTHING
    bias: Tensor | None = None  # float, broadcasts to (B, H, T, S); what is below HIDES hides a key
    alibi: Tensor | None = None  # (H,) slopes
    weights: Tensor | None = None  # (B, H, T, S), where softmax was written out; then q and k are None
    lse: Tensor | None = None  # (B, H, T), where the model's own kernel handed it out
    real: Tensor | None = None  # (B, T) bool; False is a padded query, which no statistic counts
    tokens: Tensor | None = None  # (B, S) ids of the keys, where queries and keys are the same text
    across: bool = False  # cross-attention: keys are another text, so no distance is between a query and a key
    extra: int = 0  # how many keys were put after those of the text; no query stands at them

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
        """Query i stands at key i + shift: the last one at the text's last key."""
        _, _, T, S = self.sizes
        return S - T - self.extra

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        found = self.q if self.weights is None else self.weights
        assert found is not None
        return found.device

    def moved(self, device: torch.device | str) -> WatchedCall:
        """The same call with its tensors on another device."""
        names = ("q", "k", "bias", "alibi", "weights", "lse", "real", "tokens")
        return replace(self, **{n: t.to(device) for n in names if (t := getattr(self, n)) is not None})
