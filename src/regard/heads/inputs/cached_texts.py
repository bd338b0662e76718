"""The token ids of cached keys: those of the earlier call that had the very same keys.

A cache may be copied, cut back, reordered or repeated between two calls, so the ids that a module read last need not be
those of the keys that it is given now. Each text of a batch is looked up by the fingerprints of its keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import Dense, Padding
from regard.heads.calls.call import Args, Kwargs, WatchedCall, changed
from regard.heads.calls.copies import copy_of
from regard.heads.calls.same_keys import fingerprint
from regard.heads.calls.visibility import mask_written_out
from regard.support.vocabulary import CACHES

KEPT = 16  # how many texts are remembered for each layer
_CACHES = frozenset(CACHES)
HELD = 64 * 2**20  # bytes of their keys that are held before fingerprints take their place


def total_length(kwargs: dict[str, Any], new: int | None, mask: Tensor | None) -> int | None:
    """How many tokens a text has with its `new` ones: by the cache in a module's arguments, or by its padding mask."""
    cache = next((kwargs[name] for name in CACHES if kwargs.get(name) is not None), None)
    length = getattr(cache, "get_seq_length", None)
    length = length() if callable(length) else getattr(cache, "length", None)
    if new is not None and isinstance(length, (int, Tensor)):
        return int(length) + new
    return None if mask is None else mask.shape[1]


def keys_with_cache(module: Any, args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    """How many keys a module's queries have with those of its cache: what may be so, by the cache; () if unknown.

    One cache for many layers has other lengths in those that ran already, so the module must say which layer it is.
    """
    if _CACHES.isdisjoint(kwargs):  # as of nearly all modules
        return ()
    cache = next((kwargs[name] for name in CACHES if kwargs.get(name) is not None), None)
    if cache is None or not (isinstance(cache, (tuple, list)) or hasattr(module, "layer_idx")):
        return ()
    first = next((t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)), None)
    if first is None or first.is_nested or first.dim() < 2:
        return ()
    new = first.shape[1]
    if isinstance(cache, (tuple, list)):  # keys and values, (B, H, n, D) or (B, n, H, D)
        return tuple(n + new for t in cache[:1] if isinstance(t, Tensor) and t.dim() > 2 for n in t.shape[1:-1])
    return _keys_of_layer(cache, module.layer_idx, new)


def _keys_of_layer(cache: Any, layer: Any, new: int) -> tuple[int, ...]:
    """As a cache of transformers tells it of a layer that is given so many new tokens."""
    length, sizes = getattr(cache, "get_seq_length", None), getattr(cache, "get_mask_sizes", None)
    past = length(layer) if callable(length) and isinstance(layer, int) else None
    if not isinstance(past, int):  # a tensor would have to be read from the device
        return ()
    keys = sizes(new, layer)[0] if callable(sizes) else past + new
    return (int(min(keys, past + new)),)  # a static cache has slots that are not used yet


class CachedText(NamedTuple):
    """A batch of texts that a layer has read: their ids (B, n), their first real token, and their last keys."""

    ids: Tensor
    first: Tensor  # (B,)
    marks: Tensor  # (B, S): fingerprints of the last S keys; until one is needed, a copy of the keys, (B, H, S, D)


def text_read(call: WatchedCall, ids: Tensor, first: Tensor) -> CachedText | None:
    """What a call has read; most texts are never read on, and the fingerprints of their keys never needed."""
    if call.origin.fingerprint is not None:
        return CachedText(ids, first, call.origin.fingerprint)
    return CachedText(ids, first, copy_of(call.attention.k)) if isinstance(call.attention, QK) else None


class CachedTexts:
    """What was read so far, by layer."""

    def __init__(self) -> None:
        self._known: dict[str, list[CachedText]] = {}
        self._new: dict[str, list[CachedText]] = {}  # since the last look-up

    def remember(self, layer: str, text: CachedText) -> None:
        """The layer has read this."""
        new = self._new.setdefault(layer, [])
        new.append(text)
        held = sum(one.marks.nbytes for one in new if one.marks.dim() == 4)
        if len(new) > KEPT or held > HELD:
            self._settle(layer)

    def _settle(self, layer: str) -> list[CachedText]:
        """All texts that the layer has read, without those that are the beginning of another."""
        texts = self._known.setdefault(layer, [])
        for text in self._new.pop(layer, []):
            marks = fingerprint(text.marks) if text.marks.dim() == 4 else text.marks
            if marks.shape[1] == text.ids.shape[1]:
                texts = [one for one in texts if not torch.equal(marks[:, : one.marks.shape[1]], one.marks)]
            texts = [*texts, text._replace(marks=marks)][-KEPT:]
        self._known[layer] = texts
        return texts

    def lengths(self, layer: str) -> list[int]:
        """How long the texts are that the layer has read, the latest first."""
        return list(dict.fromkeys(text.ids.shape[1] for text in self._settle(layer)[::-1]))

    def before(self, layer: str, marks: Tensor, T: int, total: int | None = None) -> CachedText | None:
        """The texts of the keys before the last T, whose fingerprints these are; None where one is unknown.

        total: how many tokens the whole text has, where that is known. Where a cache has dropped keys, texts of that
        length with the same last keys, also those of one batch, may differ in the first ones: then these are unknown.
        """
        past, before = marks[:, : marks.shape[1] - T], None if total is None else total - T
        texts = self._settle(layer)[::-1]
        same = [_beginning(text, past, before) for text in texts if text.marks.shape[0] == past.shape[0]]
        if (found := _only(same, before)) is not None and found.ids.shape[1] == past.shape[1]:
            return found
        rows = [_only([one for text in texts for one in _rows(text, row, before)], before) for row in past]
        known = [row for row in rows if row is not None]
        if len(known) < len(rows) or len({row.ids.shape[1] for row in known}) != 1:
            return None
        return CachedText(*(torch.cat(parts) for parts in zip(*known, strict=True)))


def _only(texts: Sequence[CachedText | None], length: int | None) -> CachedText | None:
    """The first, if all have the same ids; of those with so many tokens, where that is known and some have."""
    known = [text for text in texts if text is not None]
    known = [text for text in known if text.ids.shape[1] == length] or known
    return known[0] if known and all(torch.equal(text.ids, known[0].ids) for text in known[1:]) else None


def _beginning(text: CachedText, past: Tensor, total: int | None) -> CachedText | None:
    """The whole text if these are its last keys, or its beginning if they are its first ones, or the last before total.

    Where its last keys are like its first ones (keys need not depend on positions), its length decides, if known. Keys
    are in between where a cache that had dropped some was cut back.
    """
    size, P, length = text.marks.shape[1], past.shape[1], text.ids.shape[1]
    if (start := _start(text, P, total)) is not None and torch.equal(text.marks[:, start : start + P], past):
        return CachedText(text.ids[:, :total], text.first, past)
    begins = P < size == length and torch.equal(text.marks[:, :P], past)
    if size >= P and not (begins and total != length) and torch.equal(text.marks[:, size - P :], past):
        return text._replace(marks=past)
    return CachedText(text.ids[:, :P], text.first, past) if begins else None


def _start(text: CachedText, P: int, total: int | None) -> int | None:
    """Where the last P keys before total begin among those of the text; None where they are not all there."""
    if total is None or total > text.ids.shape[1]:
        return None
    start = total - P - (text.ids.shape[1] - text.marks.shape[1])
    return start if start >= 0 else None


def _rows(text: CachedText, past: Tensor, total: int | None) -> Iterator[CachedText]:
    """Those of the texts that have these keys, (P,)."""
    size, P = text.marks.shape[1], len(past)
    if size < P:
        return
    cut = _start(text, P, total)
    for start in dict.fromkeys((size - P, 0) if cut is None else (cut, size - P, 0)):
        rows = (text.marks[:, start : start + P] == past).all(1).nonzero()[:, 0].tolist()
        for row in rows:
            one = CachedText(*(part[row : row + 1] for part in text))
            if (found := _beginning(one, past[None], total)) is not None:
                yield found


def without_unused_slots(call: WatchedCall, length: int) -> WatchedCall:
    """Without the slots of a static cache after the first `length`, which are not written yet, if no query may see one.

    The last query is then at the last key.
    """
    attention, (_, _, T, S) = call.attention, call.sizes
    mask = attention.mask
    if not T <= length < S or call.origin.extra:
        return call
    numbers: dict[str, Any]
    if isinstance(attention, QK):
        if attention.bias is not None or not isinstance(mask, (Dense, Padding)):
            return call
        allowed = mask.seen if isinstance(mask, Dense) else mask.keep
        if allowed.dim() < 2 or allowed.shape[-1] != S or allowed[..., length:].any():
            return call
        numbers = {"mask": type(mask)(allowed[..., :length]), "k": attention.k[:, :, :length]}
    else:  # rows that see nothing may have weight elsewhere
        allowed = mask.dense(T, S, call.device).expand(-1, -1, T, S)
        if allowed[..., length:].any():
            return call
        numbers = {"mask": mask_written_out(allowed[..., :length]), "weights": attention.weights[..., :length]}
    marks = call.origin.fingerprint
    origin = changed(call.origin, fingerprint=None if marks is None else marks[..., :length])
    return changed(call, attention=changed(attention, **numbers), origin=origin)
