"""A module call in progress: its arguments, what they say of the attention inside, and what that attention did so far.

Most modules contain no attention, so the arguments are read when an attention call asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.attention.masks import Mask
from regard.heads.calls.call import WatchedCall
from regard.heads.inputs.cached_texts import CachedText
from regard.heads.inputs.key_source import KeySource, key_source
from regard.heads.inputs.positions import Given, given_to, is_given_image


@dataclass
class CallInputs:
    """The token ids and the padding mask of one module call."""

    ids: Tensor | None = None  # (B, n), new in this call
    real: Tensor | None = None  # (B, past + n) or (B, n), True = not padding
    length: int | None = None  # n
    total: int | None = None  # tokens of the text so far, those of this call included, where that is said
    past: CachedText | None = None  # what earlier calls read, where the keys of the first attention prove it
    read: CachedText | None = None  # what the first attention inside has read by now
    layer: str | None = None  # that attention
    source_length: int | None = None  # length of the text that cross-attention reads
    is_ambiguous: bool = False  # there was a second argument of integers: perhaps the ids of another text
    is_cached: bool = False  # attention inside read the ids of earlier calls and of this one together

    def past_length(self, B: int) -> int:
        """How many ids of earlier calls may come before those of this one."""
        return 0 if self.past is None or self.past.ids.shape[0] != B else self.past.ids.shape[1]


class Piece(NamedTuple):
    """A call with some rows of a text, the edges that a cut removed from it, and what its heads handed over."""

    call: WatchedCall
    removed: Mask | None
    context: Tensor | None


class ModuleCall:
    """A module call in progress; inputs: what it was given, None where its arguments say nothing about that.

    outer: the call around it. name: the dotted name of the module.

    >>> import torch
    >>> call = ModuleCall(nn.Identity(), (torch.zeros(2, 5, 7),), {}, None)
    >>> call.given.shape, call.of_image
    ((2, 5, 7), False)
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
        self.pieces: list[Piece] = []
        self.is_refused = False  # a part of its attention is not reported
        self.is_cut = False  # a piece of its attention was cut

    @cached_property
    def source(self) -> KeySource:
        """Another text for its keys, where it was given one."""
        return key_source(self.module, self.args, self.kwargs)

    @cached_property
    def given(self) -> Given:
        """The shape of its first tensor, or of the one of the call around it; is there a cache in any of them?"""
        own = given_to(self.args, self.kwargs)
        if self.outer is None:
            return own
        return Given(own.shape or self.outer.given.shape, own.cached or self.outer.given.cached)

    @cached_property
    def of_image(self) -> bool:
        """Was it called with an image, and with no token ids?"""
        return is_given_image(self.args, self.kwargs)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """All of its arguments."""
        return (*self.args, *self.kwargs.values())
