"""The texts of modules: by their arguments, token ids and padding; of their outputs; and of the keys inside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from regard.attention.call import QK
from regard.heads.calls.call import Args, TextIds, WatchedCall
from regard.heads.inputs.cached_texts import text_read
from regard.heads.inputs.module_call import CallInputs, Given
from regard.heads.inputs.user_texts import for_batch
from regard.heads.measure.target_keys import first_visible
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
    given = next((one for one in candidates if holds_integers(one)), None)
    ids = given.detach().reshape(-1, given.shape[-1]) if given is not None and given.dim() in (1, 2) else None
    real = read_padding(arguments)
    if ids is None and real is None:
        return None
    length, embedded = None if ids is None else ids.shape[1], arguments.get("inputs_embeds")
    if length is None and isinstance(embedded, Tensor) and embedded.dim() == 3:
        length = embedded.shape[1]
    return CallInputs(ids, given, real, length, is_ambiguous=len(args) > 1 and holds_integers(args[1]))


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


def token_ids(inputs: CallInputs, call: WatchedCall, given: Given) -> Tensor | None:
    """(B, S) ids of the keys: those of this call, after those of earlier calls where the keys come from a cache."""
    assert inputs.ids is not None
    B, _, T, S = call.sizes
    if S == T and not inputs.is_cached:
        return for_batch(inputs.ids, B)
    length, ids = inputs.past_length(B) + T, for_batch(inputs.ids, B)
    # S < length: the cache keeps the last keys only, if it does not say that it has others.
    are_last = T < S <= length and (length == S or not given.keys or S in given.keys)
    if inputs.past is None or ids is None or not are_last:
        return None
    inputs.is_cached = True
    return torch.cat([inputs.past.ids, ids], 1)[:, length - S :]


def with_text(call: WatchedCall, inputs: CallInputs, module: str) -> WatchedCall:
    """A call whose ids are known, with where its text begins; the first of a forward is remembered for later ones."""
    assert call.origin.tokens is not None
    B, _, T, S = call.sizes
    first, ids = None, call.origin.tokens
    if inputs.is_cached and inputs.past is not None:
        before = inputs.past.ids.shape[1] + T - S  # how many keys were dropped
        first, ids = inputs.past.first, torch.cat([inputs.past.ids, call.origin.tokens[:, S - T :]], 1)
        dropped = torch.where(torch.arange(before, device=ids.device) < first[:, None], -1, ids[:, :before])
        call = call.with_origin(first=first - before, dropped=dropped if before else None)
    if inputs.layer is None and (call.origin.fingerprint is not None or isinstance(call.attention, QK)):
        if first is None:
            counted, real = torch.ones(B, 1, T, dtype=torch.bool, device=call.device), call.origin.real
            first = first_visible(call, counted if real is None else real[:, None].to(call.device))
        inputs.layer, inputs.read = module, text_read(call, ids.detach().clone(), first.to(ids.device))
    return call


def after_dropped_keys(call: WatchedCall, inputs: CallInputs) -> WatchedCall:
    """A call whose earlier ids are unknown, with how many keys before its own a cache has dropped."""
    B, _, T, S = call.sizes
    if inputs.total is None or not T < S < inputs.total:
        return call
    first, count = torch.zeros(B, dtype=torch.long, device=call.device), inputs.total - S
    if inputs.real is not None and inputs.real.shape == (B, inputs.total):
        first = (~inputs.real).cumprod(1).sum(1).to(call.device)
    return call.with_origin(first=first - count, dropped=first.new_full((B, count), -1))
