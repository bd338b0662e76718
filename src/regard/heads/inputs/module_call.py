"""A module call in progress: its arguments, what they say of the attention inside, and what that attention did so far.

Most modules contain no attention, so the arguments are read when an attention call asks.
"""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.layer import MultiHeadAttention
from regard.attention.masks import Mask
from regard.heads.calls.call import Args, Kwargs, WatchedCall
from regard.heads.inputs.cached_texts import CachedText, keys_with_cache
from regard.heads.inputs.row_origin import RowOrigins
from regard.heads.inputs.row_relation import Relation, RowOrigin
from regard.support.vocabulary import CACHES, KEY_SOURCES

CROSS_ATTENTION = re.compile(r"cross|encoder_att|enc_?dec|multihead_attn|attn2", re.IGNORECASE)  # names of modules
INSIDE_CROSS_ATTENTION = re.compile(r"cross_?att(?!.*self_?att)", re.IGNORECASE)  # anywhere in the name
IMAGES = {"pixel_values", "pixel_values_videos", "images", "image"}


class KeySource(NamedTuple):
    """The argument with which a module was given another text for its keys ("" if none), its length and its value.

    twin: the text may also be the same, or its positions: it is as long, and nothing says what it is.
    """

    name: str = ""
    length: int = 0
    states: Tensor | None = None
    twin: bool = False


NO_SOURCE = KeySource()


class Given(NamedTuple):
    """What the module around a call was given: the shape of its first tensor, and whether there is a cache.

    keys: how many keys its queries have together with those of the cache, by the cache; none where that does not tell.
    """

    shape: tuple[int, ...] = ()
    cached: bool = False
    keys: tuple[int, ...] = ()

    def texts_of(self, T: int) -> int | None:
        """How many texts of T tokens this is; None where it is none.

        (T, E), (B, T, E), (T, B, E), an image (B, rows, columns, E) or (B, E, rows, columns), or heads (B, H, T, D).
        """
        match self.shape:
            case ():
                return None
            case (length,) | (length, _) if length == T:
                return 1
            case (texts, *inside, _) if inside and (math.prod(inside) == T or inside[-1] == T):
                return texts
            case (length, texts, _) if length == T:
                return texts
            case (texts, _, *inside) if len(inside) > 1 and math.prod(inside) == T:
                return texts
        return None


@dataclass
class CallInputs:
    """The token ids and the padding mask of one module call."""

    ids: Tensor | None = None  # (B, n), new in this call
    given: Tensor | None = None  # the very tensor that they were given as
    real: Tensor | None = None  # (B, past + n) or (B, n), True = not padding
    length: int | None = None  # n
    total: int | None = None  # tokens of the text so far, those of this call included, where that is said
    past: CachedText | None = None  # what earlier calls read, where the keys of the first attention prove it
    read: CachedText | None = None  # what the first attention inside has read by now
    layer: str | None = None  # that attention
    source_length: int | None = None  # length of the text that cross-attention reads
    is_ambiguous: bool = False  # there was a second argument of integers: perhaps the ids of another text
    is_cached: bool = False  # attention inside read the ids of earlier calls and of this one together
    rows: RowOrigin | None = None  # where the rows of this text come from, if that is followed

    def past_length(self, B: int) -> int:
        """How many ids of earlier calls may come before those of this one."""
        return 0 if self.past is None or self.past.ids.shape[0] != B else self.past.ids.shape[1]

    def inherit_ids(self, outer: CallInputs, origins: RowOrigins | None = None) -> None:
        """A module inside that is given only the padding mask reads the same ids, if the sizes agree.

        origins: where tensors come from, if that is followed; it must not be another text.
        """
        if self.ids is not None or self.real is None or outer.ids is None:
            return
        followed = origins is not None and self.rows is not None and outer.rows is not None
        if followed and origins.relation(self.rows, outer.rows) is Relation.OTHER:  # type: ignore[union-attr, arg-type]
            return
        if self.real.shape == (outer.ids if outer.real is None else outer.real).shape:
            self.ids, self.length = outer.ids, outer.length

    def inherit_padding(self, outer: CallInputs) -> None:
        """A module inside that is given the very same ids once more, without their padding mask, has the same mask."""
        if self.real is None and self.given is not None and self.given is outer.given:
            self.real = outer.real


class ModuleCall:
    """A module call in progress; inputs: what it was given, None where its arguments say nothing about that.

    outer: the call around it. name: the dotted name of the module.
    """

    def __init__(
        self,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: CallInputs | None,
        outer: ModuleCall | None = None,
        name: str = "",
    ) -> None:
        self.module, self.args, self.kwargs, self.inputs, self.outer = module, args, kwargs, inputs, outer
        self.known: CallInputs | None = inputs if inputs is not None or outer is None else outer.known
        self.name = name
        self.keys = keys_with_cache(module, args, kwargs) if kwargs else ()  # before the cache has the new ones
        # Calls with some rows of its text, the edges that a cut removed from each, and what its heads handed over.
        self.pieces: list[tuple[WatchedCall, Mask | None, Tensor | None]] = []
        self.parts: list[tuple[WatchedCall, Mask | None, Tensor | None]] = []  # which may be parts of one call
        self.versions: list[int] = []  # of the tensors of each
        self.attended: list[Any] = []  # while it is cut: the tensors of each attention call, and what was cut of it
        self.is_refused = False  # a part of its attention is not reported
        self.is_cut = False  # a piece of its attention was cut
        self.first_layer = 0  # how many attention calls there were before it

    @cached_property
    def source(self) -> KeySource:
        """Another text for its keys, where it was given one."""
        return key_source(self.module, self.args, self.kwargs)

    @cached_property
    def given(self) -> Given:
        """The shape of its first tensor, or of the one of the call around it; is there a cache in any of them?"""
        own, outer = given_to(self.args, self.kwargs), Given() if self.outer is None else self.outer.given
        return Given(own.shape or outer.shape, own.cached or outer.cached, self.keys or outer.keys)

    @cached_property
    def of_image(self) -> bool:
        """Was it called with an image, and with no token ids?"""
        return is_given_image(self.args, self.kwargs)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (*self.args, *self.kwargs.values())


def key_source(module: nn.Module, args: Args, kwargs: Kwargs) -> KeySource:
    """The argument that holds another text for the keys."""
    sources = {name: kwargs[name] for name in KEY_SOURCES if name in kwargs} if kwargs else {}
    if isinstance(module, MultiHeadAttention):
        sources["context"] = argument(1, "source", args, kwargs)  # as other layers call it
    for name, states in sources.items():
        if not isinstance(states, Tensor) or states.dim() < 2:
            continue
        if sum(value is states for value in (*args, *kwargs.values())) == 1:  # it may be given as the queries, too
            return KeySource(name, states.shape[-2], states)
    if isinstance(module, nn.MultiheadAttention) and not is_self_attention(args, kwargs):
        key = argument(1, "key", args, kwargs)
        if isinstance(key, Tensor) and not key.is_nested:
            length = key.shape[1 if module.batch_first and key.dim() == 3 else 0]
            return KeySource("key", length, key, twin=True)
    return _source_by_position(args)


def _source_by_position(args: Args) -> KeySource:
    """A second text of another length among the arguments, (B, S, F) beside (B, T, E)."""
    texts = [t for t in args if isinstance(t, Tensor) and t.dim() == 3 and t.is_floating_point()]
    if not texts or texts[0] is not args[0]:
        return NO_SOURCE
    text, is_nested = texts[0], any(t.is_nested for t in texts)
    others = [t for t in texts if t is not text and (is_nested or t.shape[0] == text.shape[0])]
    other = next((t for t in others if _length(t) != _length(text)), None)
    if other is None:
        return KeySource(twin=len(others) == 1)  # two more are keys and values
    return KeySource("position", _length(other), other)


def _length(text: Tensor) -> int:
    return 0 if text.is_nested else text.shape[1]


def is_self_attention(args: Args, kwargs: Kwargs) -> bool:
    """Are queries and keys the same text? torch.nn.MultiheadAttention gets a padding mask of the keys only."""
    return argument(0, "query", args, kwargs) is argument(1, "key", args, kwargs)


def argument(i: int, name: str, args: Args, kwargs: Kwargs) -> Any:
    """The i-th argument, which has this name."""
    return args[i] if len(args) > i else kwargs.get(name)


def given_to(args: Args, kwargs: Kwargs) -> Given:
    """The shape of the first tensor among the arguments; token ids count as vectors of one number."""
    cached = any(kwargs.get(name) is not None for name in CACHES) if kwargs else False
    for value in args or kwargs.values():
        if isinstance(value, Tensor) and value.dim() and not value.is_nested:
            shape = tuple(value.shape)
            return Given(shape if value.is_floating_point() else (*shape, 1), cached)
    return Given((), cached)


def is_given_image(args: Args, kwargs: Kwargs) -> bool:
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    if any(kwargs.get(name) is not None for name in IMAGES):
        return not any(t.dtype in (torch.int64, torch.int32) for t in tensors)
    if not tensors or tensors[0].is_nested or tensors[0].dim() != 4:
        return False
    _, channels, rows, columns = tensors[0].shape
    return channels in (1, 3) and rows == columns


@lru_cache(maxsize=4096)
def named_cross_attention(module: str) -> str | None:
    """The part of a module's name by which it is cross-attention."""
    named = CROSS_ATTENTION.search(".".join(module.split(".")[-2:])) or INSIDE_CROSS_ATTENTION.search(module)
    return None if named is None else named.group()


def positional_names(module: nn.Module) -> tuple[str, ...]:
    """The names of the arguments of its forward."""
    bound = getattr(module.forward, "__func__", None)
    return _names_of(module.forward) if bound is None else _names_of(bound)[1:]


@lru_cache(maxsize=64)
def _names_of(function: Any) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()
    return tuple(name for name, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
