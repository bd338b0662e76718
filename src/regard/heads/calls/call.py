"""A watched call: the numbers of one attention, with which every weight can be computed again, and its origin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from regard.attention.call import QK, Call
from regard.attention.masks import EVERYTHING, Mask
from regard.heads.calls.axis_roles import CallPart
from regard.heads.calls.basis import USUAL, Basis, How
from regard.heads.calls.lineage import Args as Args
from regard.heads.calls.lineage import Kwargs as Kwargs
from regard.heads.calls.wiring import HeadWiring

Value = TypeVar("Value")


@dataclass(frozen=True)
class OwnWeights:
    """The weights of an attention whose model computed them itself, so that its queries and keys are not known."""

    weights: Tensor  # (B, H, T, S)
    mask: Mask = EVERYTHING  # the keys that each query may see: a weight of 0 may also be a small one, rounded

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(B, H, T, S)."""
        B, H, T, S = self.weights.shape
        return B, H, T, S

    @property
    def device(self) -> torch.device:
        return self.weights.device


Attention = QK | OwnWeights


class TextIds(NamedTuple):
    """The token ids of a batch of texts, (B, n), and which of them are real tokens; None where all are."""

    ids: Tensor
    real: Tensor | None = None


@dataclass(frozen=True)
class Origin:
    """What is known about where an attention call came from: its module, its texts, and how all this is known."""

    module: str = ""  # the module that made the call, by its dotted name; "" for the model itself
    real: Tensor | None = None  # (B, T) bool; False is a padded query, which no statistic counts
    tokens: Tensor | None = None  # (B, S) ids of the keys, where queries and keys are the same text
    across: bool = False  # cross-attention: keys are another text, so no query has a distance to a key
    query_text: TextIds | None = None  # in cross-attention: the text of the queries, and that of the keys
    key_text: TextIds | None = None
    fingerprint: Tensor | None = None  # (B, S) int64 of the keys, or of the values, where it was computed
    first: Tensor | None = None  # (B,): the text's first key, where an earlier call showed it; negative: not here
    dropped: Tensor | None = None  # (B, n) ids of the text's keys before those of this call, which a cache dropped
    part: CallPart | None = None  # what of its module's input it has, where it may be one of several calls
    extra: int = 0  # how many keys were appended to those of the text; no query is at their positions
    basis: Basis = USUAL


UNKNOWN_ORIGIN = Origin()


@dataclass(frozen=True)
class WatchedCall:
    """An attention call of a watched model: its numbers, where it came from, and as much of its result as is known.

    `attention` is a Call, with values and gradients, only while a cut needs these.
    """

    attention: Attention
    origin: Origin = UNKNOWN_ORIGIN
    lse: Tensor | None = None  # (B, H, T), where the model's own kernel returned it
    context: Tensor | None = None  # (B, H, T, D), what each head handed over, where that was asked for
    wiring: HeadWiring | None = None  # and the linear maps around it

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(B, H, T, S)."""
        return self.attention.sizes

    @property
    def device(self) -> torch.device:
        return self.attention.device

    @property
    def shift(self) -> int:
        """Query i is at key position i + shift: the last one at the text's last key."""
        _, _, T, S = self.attention.sizes
        return S - T - self.origin.extra

    @property
    def has_positions(self) -> bool:
        """Does each query stand at a key, as far as is known?"""
        return not self.origin.across and self.origin.basis.positions.how is not How.UNKNOWN

    def with_origin(self, **values: Any) -> WatchedCall:
        """The same call with other values for some fields of its origin."""
        return changed(self, origin=changed(self.origin, **values))

    def with_attention(self, **values: Any) -> WatchedCall:
        """The same call with other values for some fields of its attention."""
        return changed(self, attention=changed(self.attention, **values))

    def detached(self) -> WatchedCall:
        """The same call without gradients and without values."""
        live = self.attention
        if not isinstance(live, Call):
            return self
        bias, alibi = (None if t is None else t.detach() for t in (live.bias, live.alibi))
        plain = QK(q=live.q.detach(), k=live.k.detach(), mask=live.mask, scale=live.scale, bias=bias, alibi=alibi)
        return changed(self, attention=plain)


def has_values(tensor: Tensor) -> bool:
    """Does the tensor hold numbers? On the meta device, and in FakeTensorMode, it is a shape and nothing else."""
    return not tensor.is_meta and type(tensor).__name__ != "FakeTensor"


def changed(value: Value, **fields: Any) -> Value:
    """The same frozen dataclass with other values for some fields: what replace() does, in a tenth of the time."""
    new = object.__new__(type(value))
    new.__dict__.update(value.__dict__, **fields)
    return new


def names_in_short(names: Sequence[str], width: int = 60) -> str:
    """Many module names in one line; names that differ by a running number are one: h.0–2.attn."""
    runs: list[tuple[str, int, int]] = []  # a pattern with {} for the number, its first and its last value
    for name in names:
        if runs and (grown := _grown(runs[-1], name)):
            runs[-1] = grown
        else:
            runs.append((name, -1, -1))
    text = ", ".join(form.replace("{}", f"{low}–{high}") if low >= 0 else form for form, low, high in runs)
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _grown(run: tuple[str, int, int], name: str) -> tuple[str, int, int] | None:
    """The run with this name added, or None where the name does not continue it."""
    form, low, high = run
    if low >= 0:
        return (form, low, high + 1) if form.replace("{}", str(high + 1)) == name else None
    for match in re.finditer(r"\d+", form):
        number = int(match.group())
        if form[: match.start()] + str(number + 1) + form[match.end() :] == name:
            return form[: match.start()] + "{}" + form[match.end() :], number, number + 1
    return None
