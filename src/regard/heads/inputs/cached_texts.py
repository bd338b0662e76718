"""The token ids of cached keys: those of the earlier call that had the very same keys.

A cache may be copied, cut back, reordered or repeated between two calls, so the ids that a module read last need not be
those of the keys that it is given now. Each text of a batch is looked up by the fingerprints of its keys.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import Dense, Padding
from regard.heads.calls.call import WatchedCall, changed
from regard.heads.calls.copies import copy_of
from regard.heads.calls.same_keys import fingerprint
from regard.support.vocabulary import CACHES

KEPT = 16  # how many texts are remembered for each layer
HELD = 64 * 2**20  # bytes of their keys that are held before fingerprints take their place


def total_length(kwargs: dict[str, Any], new: int | None, mask: Tensor | None) -> int | None:
    """How many tokens a text has with its `new` ones: by the cache in a module's arguments, or by its padding mask."""
    cache = next((kwargs[name] for name in CACHES if kwargs.get(name) is not None), None)
    length = getattr(cache, "get_seq_length", None)
    length = length() if callable(length) else getattr(cache, "length", None)
    if new is not None and isinstance(length, (int, Tensor)):
        return int(length) + new
    return None if mask is None else mask.shape[1]


class CachedText(NamedTuple):
    """A batch of texts that a layer has read: their ids (B, n), their first real token, and their last keys."""

    ids: Tensor
    first: Tensor  # (B,)
    marks: Tensor  # (B, S): fingerprints of the last S keys


class UnmarkedText(NamedTuple):
    """The same with a copy of the keys: most texts are never read on, and their fingerprints never needed."""

    ids: Tensor
    first: Tensor
    keys: Tensor  # (B, H, S, D)

    def marked(self) -> CachedText:
        """With fingerprints in place of the keys."""
        return CachedText(self.ids, self.first, fingerprint(self.keys))


ReadText = CachedText | UnmarkedText


def text_read(call: WatchedCall, ids: Tensor, first: Tensor) -> ReadText | None:
    """What a call has read, with the fingerprints of its keys where they are known, or with the keys, if any."""
    if call.origin.fingerprint is not None:
        return CachedText(ids, first, call.origin.fingerprint)
    return UnmarkedText(ids, first, copy_of(call.attention.k)) if isinstance(call.attention, QK) else None


class CachedTexts:
    """What was read so far, by layer."""

    def __init__(self) -> None:
        self._known: dict[str, list[CachedText]] = {}
        self._new: dict[str, list[ReadText]] = {}  # since the last look-up

    def remember(self, layer: str, text: ReadText) -> None:
        """The layer has read this."""
        new = self._new.setdefault(layer, [])
        new.append(text)
        held = sum(one.keys.numel() * one.keys.element_size() for one in new if isinstance(one, UnmarkedText))
        if len(new) > KEPT or held > HELD:
            self._settle(layer)

    def _settle(self, layer: str) -> list[CachedText]:
        """All texts that the layer has read, without those that are the beginning of another."""
        for new in self._new.pop(layer, []):
            text = new.marked() if isinstance(new, UnmarkedText) else new
            begun = text.marks if text.marks.shape[1] == text.ids.shape[1] else None
            texts = [one for one in self._known.get(layer, []) if begun is None or not _begins(begun, one.marks)]
            self._known[layer] = [*texts, text][-KEPT:]
        return self._known.get(layer, [])

    def lengths(self, layer: str) -> list[int]:
        """How long the texts are that the layer has read, the latest first."""
        return list(dict.fromkeys(text.ids.shape[1] for text in self._settle(layer)[::-1]))

    def before(self, layer: str, marks: Tensor, T: int, total: int | None = None) -> CachedText | None:
        """The texts of the keys before the last T, whose fingerprints these are; None where one is unknown.

        total: how many tokens the whole text has, where that is known. Where a cache has dropped keys, texts of that
        length with the same last keys may differ in the first ones: then these are unknown.
        """
        past, before = marks[:, : marks.shape[1] - T], None if total is None else total - T
        texts = self._settle(layer)[::-1]
        same = [t for t in texts if t.marks.shape[0] == past.shape[0]]
        if found := _of_length([one for t in same if (one := _beginning(t, past, before)) is not None], before):
            return _only(found)
        rows = [
            _only(_of_length([one for t in texts if (one := _row(t, row, before)) is not None], before)) for row in past
        ]
        known = [row for row in rows if row is not None]
        if len(known) < len(rows) or len({row.ids.shape[1] for row in known}) != 1:
            return None
        return CachedText(*(torch.cat(parts) for parts in zip(*known, strict=True)))


def _of_length(texts: list[CachedText], length: int | None) -> list[CachedText]:
    """Those with so many tokens, where that is known and some have."""
    return [text for text in texts if text.ids.shape[1] == length] or texts


def _only(texts: list[CachedText]) -> CachedText | None:
    """The first, if all have the same ids."""
    same = all(torch.equal(text.ids, texts[0].ids) for text in texts[1:])
    return texts[0] if texts and same else None


def _begins(marks: Tensor, shorter: Tensor) -> bool:
    return torch.equal(marks[:, : shorter.shape[1]], shorter)


def _beginning(text: CachedText, past: Tensor, total: int | None) -> CachedText | None:
    """The whole text if these are its last keys, or its beginning if they are its first ones.

    Where its last keys are like its first ones, its length decides, if that is known: keys need not depend on
    positions.
    """
    size, P, length = text.marks.shape[1], past.shape[1], text.ids.shape[1]
    begins = P < size == length and _begins(text.marks, past)
    if size >= P and not (begins and total != length) and torch.equal(text.marks[:, size - P :], past):
        return text._replace(marks=past)
    return CachedText(text.ids[:, :P], text.first, past) if begins else None


def _row(text: CachedText, past: Tensor, total: int | None) -> CachedText | None:
    """The one of the texts that has these keys, (P,)."""
    size, P = text.marks.shape[1], len(past)
    if size < P:
        return None
    for start in dict.fromkeys((size - P, 0)):
        rows = (text.marks[:, start : start + P] == past).all(1).nonzero()[:, 0].tolist()
        for row in rows:
            one = CachedText(*(part[row : row + 1] for part in text))
            if (found := _beginning(one, past[None], total)) is not None:
                return found
    return None


def without_unused_slots(call: WatchedCall, length: int) -> WatchedCall:
    """Without the slots of a static cache after the first `length`, which are not written yet, if no query may see one.

    The last query is then at the last key.
    """
    attention, (_, _, T, S) = call.attention, call.sizes
    mask = attention.mask
    if not T <= length < S or call.origin.extra or not isinstance(mask, (Dense, Padding)):
        return call
    allowed = mask.seen if isinstance(mask, Dense) else mask.keep
    if allowed.dim() < 2 or allowed.shape[-1] != S or allowed[..., length:].any():
        return call
    used = allowed[..., :length]
    numbers: dict[str, Any] = {"mask": Dense(used) if isinstance(mask, Dense) else Padding(used)}
    if isinstance(attention, QK):
        if attention.bias is not None:
            return call
        numbers["k"] = attention.k[:, :, :length]
    else:  # rows that see nothing may have weight elsewhere
        numbers["weights"] = attention.weights[..., :length]
        numbers["seen"] = None if attention.seen is None else attention.seen[..., :length]
    marks = call.origin.fingerprint
    origin = changed(call.origin, fingerprint=None if marks is None else marks[..., :length])
    return changed(call, attention=changed(attention, **numbers), origin=origin)
