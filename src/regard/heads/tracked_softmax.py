"""The weights of one softmax, and how they follow what the model does with the tensor that holds them.

The model's tensor may be reshaped, permuted, sliced or masked before it is multiplied with the values. The weights are
kept with the axes of the softmax, before dropout; where they cannot be derived any more, the reason is kept instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from regard.attention.masks import EVERYTHING, Mask, Padding
from regard.heads.call import WatchedCall


def _identity(tensor: Tensor) -> Tensor:
    return tensor


@dataclass(eq=False)
class TrackedSoftmax:
    """The weights that a tensor of the model holds, as long as it may still be multiplied with values."""

    weights: Tensor  # with the axes of the softmax; not the model's own tensor object, which must remain free to die
    visible: Tensor | None = None  # (…, 1, S): may any query see this key? By the scores: weights can round to 0
    restore: Callable[[Tensor], Tensor] = _identity  # from the axes of the model's tensor to those of the softmax
    transposed: bool = False  # the model's tensor has keys before queries, to be multiplied from the right
    heads: tuple[int, int] | None = None  # (B, H), once the model has viewed its tensor with these axes
    after_dropout: bool = False  # the model's tensor has been through dropout; the weights have not
    unknown: str = ""  # why the weights cannot be derived any more
    origin: object = field(default_factory=object)  # identifies the softmax

    @property
    def has_own_axes(self) -> bool:
        """Does the model's tensor have the axes of the softmax?"""
        return self.restore is _identity

    def overwritten(self, tensor: Tensor, shape: torch.Size) -> TrackedSoftmax:
        """The weights are what the tensor holds now. `shape`: the model's tensor before that."""
        if tensor.shape == shape:
            return replace(self, weights=self.restore(tensor.detach()))
        return replace(self, weights=tensor.detach(), restore=_identity)

    def reshaped(self, before: Tensor, after: Tensor) -> TrackedSoftmax:
        """The model's tensor has another shape or dtype."""
        if after.shape == before.shape:
            return self
        if after.numel() != before.numel():
            return replace(self, restore=_identity)
        restore, shape = self.restore, before.shape
        return replace(self, restore=lambda t: restore(t.reshape(shape)))

    def permuted(self, order: list[int]) -> TrackedSoftmax | None:
        """The model's tensor has its axes in another order; None where keys are not among the last two any more."""
        last = len(order) - 1
        keys = order.index(last - self.transposed)
        if keys < last - 1:
            return None
        restore, inverse = self.restore, [order.index(axis) for axis in range(len(order))]
        return replace(self, restore=lambda t: restore(t.permute(inverse)), transposed=keys < last)

    def dropped(self, in_place: bool) -> TrackedSoftmax:
        """The model's tensor goes through dropout."""
        if self.after_dropout:
            return self
        return replace(self, weights=self.weights.clone() if in_place else self.weights, after_dropout=True)

    def sliced(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], slices: tuple[Tensor, ...]
    ) -> list[TrackedSoftmax]:
        """One for each slice that the function made of the model's tensor, the first of the arguments."""
        weights, visible, unknown = slices, None, self.unknown
        if self.has_own_axes and args[0].shape == self.weights.shape:
            weights = as_tuple(function(self.weights, *args[1:], **kwargs))
            if self.visible is not None:
                visible = as_tuple(function(self.visible.expand_as(self.weights), *args[1:], **kwargs))
        elif self.after_dropout:
            unknown = unknown or "after dropout its weights are viewed and cut; put dropout last"
        return [
            TrackedSoftmax(
                part.detach(),
                None if visible is None or part.dim() < 2 else visible[i].any(-2, keepdim=True),
                after_dropout=self.after_dropout,
                unknown=unknown,
            )
            for i, part in enumerate(weights)
        ]

    def changed_before_dropout(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensor: Tensor
    ) -> TrackedSoftmax:
        """Apply the function to the weights before dropout instead of the model's tensor."""
        with torch.no_grad():
            weights = self.weights.clone()
            named = {name: weights if value is tensor else value for name, value in kwargs.items()}
            out = function(*(weights if value is tensor else value for value in args), **named)
        return replace(self, weights=out if isinstance(out, Tensor) else weights)

    def call(self, batch: int | None) -> WatchedCall:
        """These weights as a call, with a mask of the keys that the scores hid from every query."""
        mask: Mask = EVERYTHING
        shape = self.weights.shape
        if self.visible is not None and self.visible.shape == (*shape[:-2], 1, shape[-1]):
            mask = Padding(self._with_head_axis(self.visible, batch).any(1)[:, 0])
        return WatchedCall("", weights=self._with_head_axis(self.weights, batch), mask=mask)

    def _with_head_axis(self, t: Tensor, batch: int | None) -> Tensor:
        """(B, H, …): two axes are one head; three are B texts of one head, or B · H where these are known."""
        if t.dim() == 2:
            return t[None, None]
        if t.dim() > 3:
            return t.flatten(0, -4)
        N = t.shape[0]
        B, H = self.heads or (batch, N // batch if batch else 0)
        return t.unflatten(0, (B, H)) if B is not None and B * H == N else t[:, None]


def as_tuple(out: Any) -> tuple[Tensor, ...]:
    """What a slicing function returned: one tensor or several."""
    return (out,) if isinstance(out, Tensor) else tuple(out)
