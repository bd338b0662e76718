"""Where the keys of cross-attention come from: the argument that holds them, and the text that they are computed from.

The output of a module that was called with token ids is remembered while it lives. Only the very same tensor counts: a
copy, such as beam search makes, is of an unknown text.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.attention.layer import MultiHeadAttention
from regard.heads.calls.call import TextIds
from regard.support.vocabulary import ENCODER_STATES, KEY_SOURCES


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
        self._known: list[tuple[weakref.ref[Tensor], TextIds]] = []

    def remember(self, output: Any, text: TextIds) -> None:
        """A module that read this text returned this output; the innermost module knows best."""
        states = _states(output)
        if states is None or states.dim() != 3 or states.shape[:2] != text.ids.shape or self.of(states) is not None:
            return
        self._known = [(ref, known) for ref, known in self._known if ref() is not None]
        self._known.append((weakref.ref(states), text))

    def of(self, states: Tensor | None) -> TextIds | None:
        """The text that these states are of, if it is known."""
        return next((text for ref, text in self._known if states is not None and ref() is states), None)


def _states(output: Any) -> Tensor | None:
    """The hidden states in what a module returned: the first tensor."""
    if isinstance(output, Mapping):
        output = tuple(output.values())
    if isinstance(output, (tuple, list)) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


def key_source(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KeySource:
    """The argument that holds another text for the keys."""
    sources = {name: kwargs[name] for name in KEY_SOURCES if name in kwargs} if kwargs else {}
    if isinstance(module, MultiHeadAttention):
        sources["context"] = args[1] if len(args) > 1 else kwargs.get("source")  # as other layers call it
    for name, states in sources.items():
        if isinstance(states, Tensor) and states.dim() > 1 and not (args and states is args[0]):
            return KeySource(name, states.shape[-2], states)
    return _source_of_torch_nn(module, args, kwargs) or _source_by_position(args)


def _source_of_torch_nn(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KeySource | None:
    if not isinstance(module, nn.MultiheadAttention) or is_self_attention(args, kwargs):
        return None
    key = args[1] if len(args) > 1 else kwargs.get("key")
    if not isinstance(key, Tensor) or key.is_nested:
        return None
    return KeySource("key", key.shape[1 if module.batch_first and key.dim() == 3 else 0], key, twin=True)


def _source_by_position(args: tuple[Any, ...]) -> KeySource:
    """A second text of another length among the arguments."""
    others = [other for other in args[1:] if _are_two_texts(args[0], other)]
    other = next((other for other in others if _length(other) != _length(args[0])), None)
    if other is None:
        return KeySource(twin=len(others) == 1)  # two more are keys and values
    return KeySource("position", _length(other), other)


def _length(text: Tensor) -> int:
    return 0 if text.is_nested else text.shape[1]


def _are_two_texts(one: Any, other: Any) -> bool:
    """May these be the vectors of two texts, (B, T, E) and (B, S, F)?"""
    both = isinstance(one, Tensor) and isinstance(other, Tensor) and one is not other
    return (
        both
        and one.dim() == other.dim() == 3
        and one.is_floating_point()
        and other.is_floating_point()
        and (one.is_nested or other.is_nested or one.shape[0] == other.shape[0])
    )


def is_self_attention(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Are queries and keys the same text? torch.nn.MultiheadAttention gets a padding mask of the keys only."""
    query, key = (args[i] if len(args) > i else kwargs.get(n) for i, n in enumerate(("query", "key")))
    return query is key


def encoder_length(kwargs: dict[str, Any]) -> int | None:
    states = kwargs.get(ENCODER_STATES)
    return states.shape[1] if isinstance(states, Tensor) and states.dim() == 3 else None
