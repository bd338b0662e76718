"""A watched call: one attention of a model, with all that is needed to compute every weight of it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.call import Call
from regard.heads.calls.basis import USUAL, Basis, How


class TextIds(NamedTuple):
    """The token ids of a batch of texts, (B, n), and which of them are real tokens; None where all are."""

    ids: Tensor
    real: Tensor | None = None


@dataclass(frozen=True)
class WatchedCall(Call):
    """An attention call of a watched model, and what is known about its text.

    v is there only while a cut needs it.
    """

    module: str  # the module that made the call, by its dotted name; "" for the model itself
    lse: Tensor | None = None  # (B, H, T), where the model's own kernel returned it
    real: Tensor | None = None  # (B, T) bool; False is a padded query, which no statistic counts
    tokens: Tensor | None = None  # (B, S) ids of the keys, where queries and keys are the same text
    across: bool = False  # cross-attention: keys are another text, so no query has a distance to a key
    query_text: TextIds | None = None  # in cross-attention: the text of the queries, and that of the keys
    key_text: TextIds | None = None
    seen: Tensor | None = None  # (B, T, S) bool: keys that scores leave visible, until padding is read from them
    fingerprint: Tensor | None = None  # (B, S) int64 of the keys, or of the values, where it was computed
    first: Tensor | None = None  # (B,): the text's first key, where an earlier call showed it; negative: not here
    dropped: Tensor | None = None  # (B, n) ids of the text's keys before those of this call, which a cache dropped
    extra: int = 0  # how many keys were appended to those of the text; no query is at their positions
    context: Tensor | None = None  # (B, H, T, D), what each head handed over, where that was asked for
    basis: Basis = USUAL  # how all this is known

    @property
    def shift(self) -> int:
        """Query i is at key position i + shift: the last one at the text's last key."""
        return super().shift - self.extra

    @property
    def has_positions(self) -> bool:
        """Does each query stand at a key, as far as is known?"""
        return not self.across and self.basis.positions.how is not How.UNKNOWN

    def changed(self, **values: Any) -> WatchedCall:
        """The same call with other values for some fields: what dataclasses.replace() does, in a tenth of the time."""
        call = object.__new__(WatchedCall)
        call.__dict__.update(self.__dict__, **values)
        return call

    def detached(self) -> WatchedCall:
        """The same call without gradients and without v."""
        if self.v is None:
            return self
        names = ("q", "k", "bias", "alibi", "weights")
        return self.changed(v=None, **{n: t.detach() for n in names if (t := getattr(self, n)) is not None})

    def moved(self, device: torch.device | str) -> WatchedCall:
        """The same call with its tensors on another device."""
        names = ("q", "k", "bias", "alibi", "weights", "lse", "real", "tokens", "fingerprint", "context")
        return self.changed(**{n: t.to(device) for n in names if (t := getattr(self, n)) is not None})
