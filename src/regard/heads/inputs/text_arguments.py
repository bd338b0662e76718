"""What the arguments of a module say of its text: token ids and padding; and the texts of what modules returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from regard.heads.calls.call import Args, TextIds
from regard.heads.inputs.module_call import CallInputs
from regard.support.arguments import is_integer
from regard.support.hidden_scores import may_see
from regard.support.vocabulary import IDS, KEY_PADDING_OF_MODEL


class EncoderTexts:
    """The texts of the outputs of modules that are alive: a copy, such as beam search makes, is of an unknown text."""

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


def read_inputs(arguments: dict[str, Any], args: Args) -> CallInputs | None:
    """Token ids and padding from the arguments of a module; None where there are neither."""
    # An argument with the name of ids, or the first one, if it holds integers.
    candidates = (*(arguments.get(name) for name in IDS), *args[:1])
    ids = next((one for one in candidates if holds_integers(one)), None)
    ids = ids.detach().reshape(-1, ids.shape[-1]) if ids is not None and ids.dim() in (1, 2) else None
    real = read_padding(arguments)
    if ids is None and real is None:
        return None
    length, embedded = None if ids is None else ids.shape[1], arguments.get("inputs_embeds")
    if length is None and isinstance(embedded, Tensor) and embedded.dim() == 3:
        length = embedded.shape[1]
    return CallInputs(ids, real, length, is_ambiguous=len(args) > 1 and holds_integers(args[1]))


def read_padding(arguments: dict[str, Any]) -> Tensor | None:
    """(B, S), True = not padding, from an attention_mask of 1 and 0 or from a key padding mask of torch.nn."""
    real = None
    mask = arguments.get("attention_mask")
    if isinstance(mask, Tensor) and mask.dim() == 2 and not (mask.is_floating_point() and bool((mask < 0).any())):
        real = mask.detach() > 0
    for name in KEY_PADDING_OF_MODEL:
        hidden = arguments.get(name)
        if isinstance(hidden, Tensor) and hidden.dim() == 2:
            real = ~hidden.detach() if hidden.dtype is torch.bool else may_see(hidden.detach())
    return real


def holds_integers(t: Any) -> bool:
    return isinstance(t, Tensor) and is_integer(t)
