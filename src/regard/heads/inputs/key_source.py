"""Where the keys of cross-attention come from: the argument that holds them, and the text that they are computed from.

The output of a module that was called with token ids is remembered while it lives. Only the very same tensor counts: a
copy, such as beam search makes, is of an unknown text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from regard.attention.layer import MultiHeadAttention
from regard.heads.calls.call import Args, Kwargs, TextIds
from regard.support.vocabulary import KEY_SOURCES


class KeySource(NamedTuple):
    """The argument with which a module was given another text for its keys ("" if none), its length and its value.

    twin: the text may also be the same, or its positions: it is as long, and nothing says what it is.
    """

    name: str = ""
    length: int = 0
    states: Tensor | None = None
    twin: bool = False


NO_SOURCE = KeySource()


class EncoderTexts:
    """The texts of the outputs that are alive."""

    def __init__(self) -> None:
        self._known = WeakTensorKeyDictionary()

    def remember(self, output: Any, text: TextIds) -> None:
        """A module that read this text returned this output; the innermost module knows best."""
        values = tuple(output.values()) if isinstance(output, Mapping) else output
        states = values[0] if isinstance(values, (tuple, list)) and values else values
        if isinstance(states, Tensor) and states.dim() == 3 and states.shape[:2] == text.ids.shape:
            self._known.setdefault(states, text)

    def of(self, states: Tensor | None) -> TextIds | None:
        """The text that these states are of, if it is known."""
        return None if states is None else self._known.get(states)


def key_source(module: nn.Module, args: Args, kwargs: Kwargs) -> KeySource:
    """The argument that holds another text for the keys."""
    sources = {name: kwargs[name] for name in KEY_SOURCES if name in kwargs} if kwargs else {}
    if isinstance(module, MultiHeadAttention):
        sources["context"] = args[1] if len(args) > 1 else kwargs.get("source")  # as other layers call it
    for name, states in sources.items():
        if isinstance(states, Tensor) and states.dim() > 1 and not (args and states is args[0]):
            return KeySource(name, states.shape[-2], states)
    if isinstance(module, nn.MultiheadAttention) and not is_self_attention(args, kwargs):
        key = args[1] if len(args) > 1 else kwargs.get("key")
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
    query, key = (args[i] if len(args) > i else kwargs.get(n) for i, n in enumerate(("query", "key")))
    return query is key
