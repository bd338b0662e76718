"""A module call in progress, and what its arguments say of the attention inside.

Most modules contain no attention, so the arguments are read when an attention call asks.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Generic, TypeVar

from torch import nn

from regard.heads.inputs.key_source import KeySource, key_source
from regard.heads.inputs.positions import Given, given_to, is_given_image

Inputs = TypeVar("Inputs")


class ModuleCall(Generic[Inputs]):
    """A module call in progress; inputs: what it was given, None where its arguments say nothing about that.

    outer: the call around it.

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
        inputs: Inputs | None,
        outer: ModuleCall[Inputs] | None = None,
    ) -> None:
        self.module, self.args, self.kwargs, self.inputs, self.outer = module, args, kwargs, inputs, outer
        self.known: Inputs | None = inputs if inputs is not None or outer is None else outer.known

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
