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
from torch.utils._pytree import tree_map

from regard.attention.masks import EVERYTHING, Mask, Padding, window
from regard.heads.calls.basis import FROM_CALL, Basis, Fact, How, assumed
from regard.heads.calls.call import Args, Kwargs, OwnWeights
from regard.heads.calls.head_axis import HeadAxis
from regard.heads.calls.score_origin import Memory
from regard.support.hidden_scores import may_see

NEAR = 1e-2  # how far from 1 the sum of a row may be: weights of 16 bits are rounded


def _identity(tensor: Tensor) -> Tensor:
    return tensor


@dataclass(frozen=True, eq=False)
class SoftmaxSource:
    """What a softmax was computed from, so that it can be computed again without some keys."""

    scores: Tensor
    version: int  # of the scores, which the model must not write over meanwhile
    run: Callable[[Tensor], Tensor]  # the model's own softmax
    take: Callable[[Tensor], Tensor] = _identity  # the part of the result that is multiplied with these values

    def part(self, parts_of: Callable[[Tensor], tuple[Tensor, ...]], i: int) -> SoftmaxSource:
        """That of one of the parts that the result is split into."""
        return replace(self, take=lambda t: parts_of(self.take(t))[i])

    def without(self, hidden: Tensor) -> Tensor:
        """The weights of this part, with the scores of hidden keys, (…, T, S), at −∞; a row without keys gives 0."""
        if version_of(self.scores) != self.version:
            raise ValueError("its scores are written over before its weights are multiplied with the values")
        everywhere = torch.zeros(self.scores.shape, dtype=torch.bool, device=hidden.device)
        part = self.take(everywhere)
        part.copy_(hidden.expand(part.shape))
        if not torch.equal(self.take(everywhere), hidden.expand(part.shape)):  # the part is no view
            raise ValueError("its weights are picked out by an index after the softmax; edges cannot be removed there")
        scores = self.scores.masked_fill(everywhere, -torch.inf)
        nothing = ~may_see(scores.detach()).any(-1, keepdim=True)
        return self.take(self.run(scores.masked_fill(nothing, 0)).masked_fill(nothing, 0))


@dataclass(eq=False)
class TrackedSoftmax:
    """The weights that a tensor of the model holds, as long as it may still be multiplied with values."""

    weights: Tensor  # with the axes of the softmax; not the model's own tensor object, which must remain free to die
    visible: Tensor | None = None  # (…, 1, S): may any query see this key? By the scores: weights can round to 0
    seen: Tensor | None = None  # (…, T, S): the keys that each query may see, where one is hidden from all queries
    restore: Callable[[Tensor], Tensor] = _identity  # from the axes of the model's tensor to those of the softmax
    transposed: bool = False  # the model's tensor has keys before queries, to be multiplied from the right
    heads: tuple[int, int] | None = None  # (B, H), once the model has viewed its tensor with these axes
    after_dropout: bool = False  # the model's tensor has been through dropout; the weights have not
    unknown: str = ""  # why the weights cannot be derived any more
    source: SoftmaxSource | None = None  # where edges may have to be removed
    origin: object = field(default_factory=object)  # identifies the softmax
    root: object = None  # the origin of the softmax that this is a part of
    queries: Memory | None = None  # those of its scores; None where its scores are no product of queries and keys
    columns: int = 0  # of the softmax, where this is a part of them
    changed: bool = False  # the weights are not what the softmax returned
    reach: int = 0  # how far any query sees, itself included, where its scores hide what is farther
    one_query: bool = False  # (N, S) was multiplied as (N, 1, S): N texts of one query, or N tokens that mix experts

    @property
    def has_own_axes(self) -> bool:
        """Does the model's tensor have the axes of the softmax?"""
        return self.restore is _identity

    def overwritten(self, tensor: Tensor, shape: torch.Size) -> TrackedSoftmax:
        """The weights are what the tensor holds now. `shape`: the model's tensor before that."""
        if tensor.shape == shape:
            return replace(self, weights=self.restore(tensor.detach()), changed=True)
        return replace(self, weights=tensor.detach(), restore=_identity, changed=True)

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

    def sliced(self, function: Any, args: Args, kwargs: Kwargs, slices: tuple[Tensor, ...]) -> list[TrackedSoftmax]:
        """One for each slice that the function made of the model's tensor, the first of the arguments."""

        def parts_of(t: Tensor) -> tuple[Tensor, ...]:
            return as_tuple(function(t, *args[1:], **kwargs))

        whole, root = args[0].shape, self.root or self.origin
        weights, visible, seen, source, unknown = slices, None, None, self.source, self.unknown
        if self.has_own_axes and whole == self.weights.shape:
            weights = parts_of(self.weights)
            visible = None if self.visible is None else parts_of(self.visible.expand_as(self.weights))
            seen = None if self.seen is None else parts_of(self.seen)
        else:
            source = None
            if self.after_dropout:
                unknown = unknown or "after dropout its weights are viewed and cut; put dropout last"
        parts = []
        for i, part in enumerate(weights):
            softmax = TrackedSoftmax(part.detach(), after_dropout=self.after_dropout, unknown=unknown, root=root)
            softmax.queries, softmax.changed = self.queries, True
            softmax.columns = self.columns or (whole[-1] if part.shape[-1:] != whole[-1:] else 0)
            if part.dim() >= 2:
                softmax.visible = None if visible is None else visible[i].any(-2, keepdim=True)
                softmax.seen = None if seen is None else seen[i]
            softmax.source = None if source is None else source.part(parts_of, i)
            parts.append(softmax)
        return parts

    def changed_before_dropout(self, function: Any, args: Args, kwargs: Kwargs, tensor: Tensor) -> TrackedSoftmax:
        """Apply the function to the weights before dropout instead of the model's tensor."""
        with torch.no_grad():
            weights = self.weights.clone()
            out = run_with_other(function, args, kwargs, tensor, weights)
        return replace(self, weights=out if isinstance(out, Tensor) else weights, changed=True)

    def as_own(self, axis: HeadAxis) -> tuple[OwnWeights, Basis]:
        """These weights, with a mask of the keys that the scores hid from every query, and how they are known."""
        mask: Mask = EVERYTHING
        seen, shape = None, self.weights.shape
        if self.visible is not None and self.visible.shape == (*shape[:-2], 1, shape[-1]):
            mask = Padding(axis.apply(self.visible).any(1)[:, 0])
            if self.seen is not None and self.seen.shape == shape:
                seen = axis.apply(self.seen).any(1)
            if self.reach and self.weights.shape[-1] > self.reach:
                mask = mask & window(self.reach)
        fact = FROM_CALL
        if self.queries is None:
            fact = assumed("these are attention weights; their scores are no product of queries and keys")
        elif self.changed and self.weights.numel():
            low, high = self._sums()
            rest = "; the rest is on a key that has no value" if self.columns else ""
            if max(abs(low - 1), abs(high - 1)) > NEAR:
                fact = Fact(How.CALL, f"rows sum to {low:.2f} – {high:.2f}{rest}")
        return OwnWeights(axis.apply(self.weights), mask, seen), Basis(weights=fact, heads=axis.fact)

    def _sums(self) -> tuple[float, float]:
        """The smallest and the largest sum of a row that has weights."""
        sums = self.weights.sum(-1, dtype=torch.float32)
        sums = sums[sums != 0]
        return (float(sums.min()), float(sums.max())) if sums.numel() else (1.0, 1.0)

    @property
    def refusal(self) -> str:
        """Why these weights are not reported; "" where they are."""
        S = self.weights.shape[-1]
        if self.unknown or (self.columns > S + 1 and self._sums()[0] < 1 - NEAR):  # one key may be an attention sink
            return self.unknown or f"only {S} of its {self.columns} columns are multiplied at once"
        return "some of its weights are negative" if self.changed and bool((self.weights < 0).any()) else ""

    def without_edges(self, hidden: Tensor, tensor: Tensor, axis: HeadAxis) -> tuple[Tensor, Tensor]:
        """The weights without the hidden keys, (B, H, T, S): before dropout, and as the model multiplies them.

        What the model did to its weights after the softmax, such as dropout, is done to these as well: as the factor by
        which it changed each weight. `tensor`: the model's weights as they are multiplied.
        """
        if self.source is None:
            raise ValueError("its weights are cut or written over after the softmax, so its scores are not known")
        shape = self.weights.shape
        if axis.reorders:
            raise ValueError("its heads are not in the axis before the queries, so edges cannot be removed")
        new = self.source.without(hidden.expand(axis.apply(self.weights).shape).reshape(shape))
        with torch.no_grad():
            old = self.source.take(self.source.run(self.source.scores.detach()))
            final = self.restore(tensor.detach()).reshape(shape)
            changes = [torch.where(old > 0, changed.to(old.dtype) / old, 1.0) for changed in (self.weights, final)]
            kept = changes[0][old > 1e-3]
            if ((kept - 1).abs().clamp(max=kept) > 1e-2).any():
                raise ValueError("its weights are scaled after the softmax, so edges cannot be removed before it")
        before_dropout, multiplied = (axis.apply(new * change) for change in changes)
        return before_dropout.detach(), multiplied


def version_of(tensor: Tensor) -> int:
    """How often the tensor was written over; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


def as_tuple(out: Any) -> tuple[Tensor, ...]:
    """What a slicing function returned: one tensor or several."""
    return (out,) if isinstance(out, Tensor) else tuple(out)


def run_with_other(function: Any, args: Args, kwargs: Kwargs, tensor: Tensor, new: Tensor) -> Any:
    """Call the function with another tensor in place of this one."""
    args, kwargs = tree_map(lambda value: new if value is tensor else value, (args, kwargs))
    return function(*args, **kwargs)
