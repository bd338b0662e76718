"""Which text an attention reads: the ids of its keys, and which of its queries are padding.

A module that is called with ids or with a padding mask opens a text; attention inside it is about that text, unless
the sizes say otherwise. With a cache the text goes on from call to call.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.layer import MultiHeadAttention
from regard.attention.masks import Dense, Padding
from regard.heads.call import WatchedCall
from regard.heads.visibility import keys_seen

# True where a token is hidden, as torch.nn has it
HIDDEN = ("src_key_padding_mask", "tgt_key_padding_mask")
IDS = ("input_ids", "ids", "idx", "tokens")  # what people call them
NAMES = {*IDS, "attention_mask", "inputs_embeds", *HIDDEN}
ACROSS = re.compile(r"cross|encoder_att|enc_?dec|multihead_attn|attn2", re.IGNORECASE)
KEYS_FROM = ("encoder_hidden_states", "key_value_states", "context")  # how an attention is told of another text


class Source(NamedTuple):
    """The argument by which a module was told of another text to read, "" where it was not, and how long that is."""

    name: str = ""
    length: int = 0


@dataclass
class Text:
    """What one call of a module said about its text."""

    ids: Tensor | None = None  # (B, n), new in this call
    real: Tensor | None = None  # (B, past + n) or (B, n), True = not padding
    new: int | None = None  # n
    past: Tensor | None = None  # (B, m) ids of former calls
    other: int | None = None  # how long the text is that cross-attention reads
    goes_on: bool = False  # attention inside read past and new ids together


class Texts:
    """The texts that are open, innermost last, and the ids that each module has read so far."""

    def __init__(self, tokens: Tensor | None, padding: Tensor | None) -> None:
        self.tokens, self.padding = _two_axes(tokens, "tokens"), _two_axes(padding, "padding")
        self.open: list[tuple[int, Text] | None] = []
        self.sources: list[Source] = []  # for each module that runs
        self.read: dict[int, Tensor] = {}
        self.lead: tuple[int, ...] = ()  # the first two axes of what the model was called with
        self.unused = {name for name, given in (("tokens", tokens), ("padding", padding)) if given is not None}
        self.sizes: set[tuple[int, int, int]] = set()  # (B, T, S) of the attentions that had no use for them

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.open:  # names of positional arguments take long to find
            given = {n: v for n, v in kwargs.items() if n in NAMES}
        else:
            given = _named(module, args, kwargs)
            first = next((v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)), None)
            self.lead = tuple(first.shape[:2]) if first is not None and not first.is_nested else ()
        if "key_padding_mask" in kwargs and _within(args, kwargs):
            given = {**given, HIDDEN[0]: kwargs["key_padding_mask"]}
        # Ids may come in further down, but not deep down, nor in a leaf: looking at tensors takes its time.
        unknown = module._modules and len(self.open) < 3 and all(entry is None for entry in self.open)
        text = _text(given, args) if given or (unknown and args) or not self.open else None
        outer = self._innermost()
        across = kwargs.get("encoder_hidden_states")
        other = across.shape[1] if isinstance(across, Tensor) and across.dim() == 3 else None
        if isinstance(module, nn.Transformer):
            text = None  # its encoder and its decoder are told each of its own text
        elif text is None and (isinstance(module, nn.TransformerDecoder) or (other and outer.other is None)):
            text = Text()  # a decoder reads another text than its encoder, and we do not know it
        if text is not None:
            _inherit(text, outer, given)
            text.past, text.other = self.read.get(id(module)), other
        self.open.append(None if text is None else (id(module), text))
        self.sources.append(_source(module, args, kwargs))

    def leave(self) -> None:
        self.sources.pop()
        entry = self.open.pop()
        if entry is not None and entry[1].ids is not None:
            key, text = entry
            assert text.ids is not None
            self.read[key] = _joined(text.past, text.ids) if text.goes_on else text.ids.detach().clone()

    def batch(self, T: int) -> int | None:
        """How many texts of T queries there are, where ids, a mask or the model's input tell."""
        text = self._innermost()
        known = text.ids if text.ids is not None else text.real
        if known is not None:
            return int(known.shape[0])
        if len(self.lead) == 2 and self.lead[0] == T != self.lead[1]:
            return self.lead[1]  # (T, B, E)
        return self.lead[0] if self.lead else None

    def fit(self, call: WatchedCall, module: str) -> WatchedCall:
        """The call with its module, tokens and padding, as far as they are known."""
        text = self._innermost()
        B, _, T, S = call.sizes
        past = 0 if text.past is None or text.ids is None or text.past.shape[0] != B else text.past.shape[1]
        across = (text.other == S and _across(module, S, text, past)) or self._told_across(module, T, S, past)
        fits = text.ids is not None and text.new == T and not across
        if fits and past + T < S and not call.extra:
            call = _without_empty_room(call, past + T)
            S = call.sizes[3]
        tokens = self._tokens(text, B, T, S, past) if fits else None
        if self.tokens is not None and T <= S <= self.tokens.shape[1] and text.other != S and not across:
            tokens = _for(self.tokens[:, :S], B)
            self.unused -= {"tokens"} if tokens is not None else set()
        call = replace(call, module=module, tokens=tokens, across=across)
        if call.real is None:
            call = replace(call, real=self._real(text, call))
            self.unused -= {"padding"} if call.real is not None else set()
        if self.unused:
            self.sizes.add((B, T, S))
        return call

    def check_used(self) -> None:
        """What was given with the watch must be of some attention that was seen."""
        for name in sorted(self.unused):
            given = self.tokens if name == "tokens" else self.padding
            assert given is not None
            seen = ", ".join(f"{B} × {T} × {S}" for B, T, S in sorted(self.sizes)[:3])
            raise ValueError(
                f"{name} has shape {tuple(given.shape)} and is of none of the attentions seen ({seen}: texts × queries "
                f"× keys); give one row for each text, as long as its keys"
            )

    def _told_across(self, module: str, T: int, S: int, past: int) -> bool:
        """Is this cross-attention, by what the module was given, or the one around it, or by its name?"""
        above, own = [Source(), *self.sources][-2:]
        named = ACROSS.search(".".join(module.split(".")[-2:]))
        if own.name:
            return own.length == S and (own.name in KEYS_FROM or T != S or named is not None)
        if named is not None and named.group() != "multihead_attn":
            return True
        return above.name == "context" and above.length == S and S not in (T, past + T)

    def _innermost(self) -> Text:
        return next((entry[1] for entry in reversed(self.open) if entry is not None), Text())

    def _tokens(self, text: Text, B: int, T: int, S: int, past: int) -> Tensor | None:
        assert text.ids is not None
        if S == T and not text.goes_on:
            return _for(text.ids, B)
        if text.past is None or T >= S:
            return None
        windowed = past + T > S and (T == 1 or text.goes_on)  # the cache keeps the last keys only
        if past + T != S and not windowed:
            return None
        text.goes_on = True
        return _for(_joined(text.past, text.ids)[:, past + T - S :], B)

    def _real(self, text: Text, call: WatchedCall) -> Tensor | None:
        B, _, T, S = call.sizes
        if self.padding is not None:
            padding = _for(self.padding, B)
            if padding is None or padding.shape[1] > S:
                return padding if padding is not None and padding.shape[1] == T else None
            padding = torch.nn.functional.pad(padding, (0, S - padding.shape[1]), value=True)
            return padding[:, call.shift : call.shift + T] if T <= S else None
        if text.real is not None:
            real = _for(text.real, B)
            if real is not None and real.shape[1] >= T and T in (text.new, real.shape[1]):
                return real[:, real.shape[1] - T :]
            return None
        above, own = [Source(), *self.sources][-2:]
        if call.across or own.name or above.name == "context" or not (T and T == S != text.other):
            return None  # whose keys these are is not certain
        seen = keys_seen(call)  # the query at the place of a key that nobody may see is padding too
        return None if seen is None else _for(seen.expand(-1, S), B)


def _text(given: dict[str, Any], args: tuple[Any, ...]) -> Text | None:
    ids = next((given[name] for name in IDS if isinstance(given.get(name), Tensor) and _whole(given[name])), None)
    if ids is None and args and isinstance(args[0], Tensor) and _whole(args[0]):
        ids = args[0]
    if not given and ids is None:
        return None
    mask, embedded = given.get("attention_mask"), given.get("inputs_embeds")
    ids = ids.detach().reshape(-1, ids.shape[-1]) if isinstance(ids, Tensor) and ids.dim() in (1, 2) else None
    new = ids.shape[1] if ids is not None else None
    if new is None and isinstance(embedded, Tensor) and embedded.dim() == 3:
        new = embedded.shape[1]
    real = None
    if isinstance(mask, Tensor) and mask.dim() == 2 and not (mask.is_floating_point() and bool((mask < 0).any())):
        real = mask.detach() > 0
    for name in HIDDEN:
        hidden = given.get(name)
        if isinstance(hidden, Tensor) and hidden.dim() == 2:
            real = ~hidden.detach() if hidden.dtype is torch.bool else hidden.detach() > -torch.inf
    return None if ids is None and real is None else Text(ids, real, new)


def _inherit(text: Text, outer: Text, given: dict[str, Any]) -> None:
    """A module inside that was told of the padding only reads the same ids, if there are as many."""
    if text.ids is not None or text.real is None or outer.ids is None or given.get("inputs_embeds") is not None:
        return
    if text.real.shape == (outer.ids if outer.real is None else outer.real).shape:
        text.ids, text.new = outer.ids, outer.new


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, the positional ones too."""
    names = _parameters(getattr(module.forward, "__func__", module.forward)) if args else ()
    return {**dict(zip(names, args, strict=False)), **kwargs}


@lru_cache(maxsize=64)
def _parameters(function: Any) -> tuple[str, ...]:
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()
    names = tuple(name for name, p in found.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    return names[1:] if names[:1] == ("self",) else names


def _within(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Are queries and keys the same text? torch.nn.MultiheadAttention is told about the keys' padding only."""
    query, key = (args[i] if len(args) > i else kwargs.get(n) for i, n in enumerate(("query", "key")))
    return query is key


def _source(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Source:
    found = {name: kwargs.get(name) for name in KEYS_FROM} if kwargs else {}
    if isinstance(module, MultiHeadAttention) and len(args) > 1:
        found["context"] = args[1]
    for name, given in found.items():
        if isinstance(given, Tensor) and given.dim() > 1 and not (args and given is args[0]):
            return Source(name, given.shape[-2])
    if isinstance(module, nn.MultiheadAttention) and not _within(args, kwargs):
        key = args[1] if len(args) > 1 else kwargs.get("key")
        if isinstance(key, Tensor) and not key.is_nested:
            return Source("key", key.shape[1 if module.batch_first and key.dim() == 3 else 0])
    return Source()


def _across(module: str, S: int, text: Text, past: int) -> bool:
    """Is this cross-attention? Where both texts are as long, only the module's name can tell."""
    return S not in (text.new, past + (text.new or 0)) or ACROSS.search(module) is not None


def _without_empty_room(call: WatchedCall, size: int) -> WatchedCall:
    """A cache of fixed size has keys that are not written yet. Without them the last query is at the last key."""
    rule = call.mask
    if call.bias is not None or not isinstance(rule, (Dense, Padding)):
        return call
    seen = rule.seen if isinstance(rule, Dense) else rule.keep
    if seen.shape[-1] != call.sizes[3] or seen[..., size:].any():
        return call
    kept = Dense(seen[..., :size]) if isinstance(rule, Dense) else Padding(seen[..., :size])
    if call.weights is not None:  # rows that see nothing may have weight there; what is in the text decides
        return replace(call, weights=call.weights[..., :size], mask=kept)
    assert call.k is not None
    return replace(call, k=call.k[:, :, :size], mask=kept)


def _for(t: Tensor, B: int) -> Tensor | None:
    return t if t.shape[0] == B else t.expand(B, -1) if t.shape[0] == 1 else None


def _joined(past: Tensor | None, ids: Tensor) -> Tensor:
    return torch.cat([past, ids], 1) if past is not None and past.shape[0] == ids.shape[0] else ids


def _two_axes(t: Tensor | None, name: str) -> Tensor | None:
    if t is None:
        return None
    t = t.detach()
    if t.dim() not in (1, 2):
        raise ValueError(f"{name} has shape {tuple(t.shape)}; give (B, T), one row for each text")
    t = t.reshape(-1, t.shape[-1])
    return t > 0 if name == "padding" else t


def _whole(t: Tensor) -> bool:
    return not t.dtype.is_floating_point and not t.dtype.is_complex and t.dtype is not torch.bool
