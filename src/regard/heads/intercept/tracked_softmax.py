"""The weights of one softmax, followed through what the model does with the tensor that holds them, and their product.

The model's tensor may be reshaped, permuted, sliced or masked before it is multiplied with the values. The weights are
kept with the axes of the softmax, before dropout; where they cannot be derived any more, the reason is kept instead.
What was done to the tensor is done once more to the numbers of its rows, which then say where each row of each head is
in the product, in whatever layout a model writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from regard.attention.masks import EVERYTHING
from regard.heads.calls.basis import FROM_CALL, Basis, Fact, How, assumed
from regard.heads.calls.call import Args, Kwargs, OwnWeights, changed
from regard.heads.calls.edits import CallEdit
from regard.heads.calls.head_axis import HeadAxis
from regard.heads.calls.lineage import LineageStep
from regard.heads.calls.score_origin import Memory
from regard.heads.calls.visibility import MasksOfScores
from regard.heads.calls.wiring import version_of
from regard.support.hidden_scores import may_see

DIVIDE = ("div", "div_", "divide", "divide_", "true_divide", "__truediv__", "__itruediv__")
NEAR = 1e-2  # how far from 1 the sum of a row may be: weights of 16 bits are rounded


def identity(tensor: Tensor) -> Tensor:
    """The same tensor."""
    return tensor


@dataclass(frozen=True, eq=False)
class SoftmaxSource:
    """What a softmax was computed from, so that it can be computed again without some keys."""

    scores: Tensor
    version: int  # of the scores, which the model must not write over meanwhile
    run: Callable[[Tensor], Tensor]  # the model's own softmax
    take: Callable[[Tensor], Tensor] = identity  # the part of the result that is multiplied with these values
    hidden_at: float = -torch.inf  # the score that hides a key; +∞ for softmin

    def part(self, parts_of: Callable[[Tensor], tuple[Tensor, ...]], i: int) -> SoftmaxSource:
        """That of one of the parts that the result is split into."""
        return replace(self, take=lambda t: parts_of(self.take(t))[i])

    def without(self, hidden: Tensor) -> Tensor:
        """The weights of this part, with scores that hide keys, (…, T, S); a row without keys gives 0."""
        if version_of(self.scores) != self.version:
            raise ValueError("its scores are written over before its weights are multiplied with the values")
        everywhere = torch.zeros(self.scores.shape, dtype=torch.bool, device=hidden.device)
        part = self.take(everywhere)
        part.copy_(hidden.expand(part.shape))
        if not torch.equal(self.take(everywhere), hidden.expand(part.shape)):  # the part is no view
            raise ValueError("its weights are picked out by an index after the softmax; edges cannot be removed there")
        scores = self.scores.masked_fill(everywhere, self.hidden_at)
        sign = 1 if self.hidden_at < 0 else -1
        nothing = ~may_see(sign * scores.detach()).any(-1, keepdim=True)
        return self.take(self.run(scores.masked_fill(nothing, 0)).masked_fill(nothing, 0))


@dataclass(eq=False)
class TrackedSoftmax:
    """The weights that a tensor of the model holds, as long as it may still be multiplied with values."""

    weights: Tensor  # with the axes of the softmax; not the model's own tensor object, which must remain free to die
    visible: Tensor | None = None  # (…, T, S): the keys that each query may see, by its scores; None: all of them
    hidden_by_zero: bool = False  # what the model hid after the softmax is not known, other than by weights of 0
    restore: Callable[[Tensor], Tensor] = identity  # from the axes of the model's tensor to those of the softmax
    keys: int = -1  # the axis of the model's tensor that holds them; −2: it is to be multiplied from the right
    heads: tuple[int, int] | None = None  # (B, H), once the model has viewed its tensor with these axes
    after_dropout: bool = False  # the model's tensor has been through dropout; the weights have not
    unknown: str = ""  # why the weights cannot be derived any more
    source: SoftmaxSource | None = None  # where edges may have to be removed
    origin: object = field(default_factory=object)  # identifies the softmax
    root: object = None  # the origin of the softmax that this is a part of
    queries: Memory | None = None  # those of its scores; None where its scores are no product of queries and keys
    columns: int = 0  # of the softmax, where this is a part of them
    changed: bool = False  # the weights are not what the softmax returned
    step: LineageStep | None = None  # how its scores were made, with the axes of the weights before `restore`
    one_query: bool = False  # (N, S) was multiplied as (N, 1, S): N texts of one query, or N tokens that mix experts

    @property
    def transposed(self) -> bool:
        """Does the model's tensor have keys before queries?"""
        return self.keys == -2

    @property
    def has_own_axes(self) -> bool:
        """Does the model's tensor have the axes of the softmax?"""
        return self.restore is identity

    def overwritten(self, tensor: Tensor, shape: torch.Size) -> TrackedSoftmax:
        """The weights are what the tensor holds now. `shape`: the model's tensor before that."""
        if tensor.shape == shape:
            return replace(self, weights=self.restore(tensor.detach()), changed=True)
        return replace(self, weights=tensor.detach(), restore=identity, changed=True)

    def reshaped(self, before: Tensor, after: Tensor) -> TrackedSoftmax:
        """The model's tensor has another shape or dtype."""
        if after.shape == before.shape:
            return self
        if after.numel() != before.numel():
            return replace(self, restore=identity)
        restore, shape = self.restore, before.shape
        return replace(self, restore=lambda t: restore(t.reshape(shape)))

    def permuted(self, order: list[int]) -> TrackedSoftmax:
        """The model's tensor has its axes in another order."""
        axes = len(order)
        restore, inverse = self.restore, [order.index(axis) for axis in range(axes)]
        return replace(self, restore=lambda t: restore(t.permute(inverse)), keys=order.index(axes + self.keys) - axes)

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
        weights, visible, source, unknown = slices, None, self.source, self.unknown
        if self.has_own_axes and whole == self.weights.shape:
            weights = parts_of(self.weights)
            visible = None if self.visible is None else parts_of(self.visible)
        else:
            source = None
            if self.after_dropout:
                unknown = unknown or "after dropout its weights are viewed and cut; put dropout last"
        parts = []
        for i, part in enumerate(weights):
            softmax = TrackedSoftmax(part.detach(), after_dropout=self.after_dropout, unknown=unknown, root=root)
            softmax.queries, softmax.changed = self.queries, True
            softmax.columns = self.columns or (whole[-1] if part.shape[-1:] != whole[-1:] else 0)
            softmax.visible = None if visible is None else visible[i]
            softmax.hidden_by_zero = self.hidden_by_zero or (visible is None and self.visible is not None)
            softmax.source = None if source is None else source.part(parts_of, i)
            parts.append(softmax)
        return parts

    def changed_before_dropout(self, function: Any, args: Args, kwargs: Kwargs, tensor: Tensor) -> TrackedSoftmax:
        """Apply the function to the weights before dropout instead of the model's tensor, where that is possible."""
        name = base_name(function)
        by_sums = name in DIVIDE and any(isinstance(a, Tensor) for a in (*args[1:], *kwargs.values()))
        if by_sums or self.weights.shape != tensor.shape or not self.has_own_axes:
            return replace(self, unknown=f"after dropout its weights go through {name}; put dropout last")
        with torch.no_grad():
            weights = self.weights.clone()
            out = run_with_other(function, args, kwargs, tensor, weights)
        return replace(self, weights=out if isinstance(out, Tensor) else weights, changed=True)

    def hidden_by(self, function: Any, args: Args, kwargs: Kwargs, tensor: Tensor) -> TrackedSoftmax:
        """The model's tensor will be changed by the function: what it makes 0, whatever was there, is hidden."""
        with torch.no_grad():
            some = torch.full_like(tensor, 0.5)
            out = run_with_other(function, args, kwargs, tensor, some)
            left = (out if isinstance(out, Tensor) else some) != 0
        if bool(left.all()):
            return self
        if left.shape != tensor.shape or tensor.numel() != self.weights.numel():
            return replace(self, hidden_by_zero=True)
        left = self.restore(left)
        return replace(self, visible=left if self.visible is None else self.visible & left)

    def _visible_keys(self) -> tuple[Tensor | None, Fact]:
        """(…, T, S): the keys that each query may see, None where it is all of them; and how that is known."""
        seen = self.visible
        if self.hidden_by_zero or (seen is not None and seen.shape != self.weights.shape):
            seen = self.weights != 0
            hides = not bool(seen.all())
            return seen if hides else None, assumed("keys with a weight of 0 are hidden") if hides else FROM_CALL
        if self.changed and seen is not None:  # small numbers may have been added to all weights
            seen = seen | ((self.weights != 0) & seen.any(-1, keepdim=True))
        return seen, FROM_CALL

    def as_own(self, axis: HeadAxis, masks: MasksOfScores) -> tuple[OwnWeights, Basis]:
        """These weights, with a mask of the keys that each query may see, and how they are known."""
        seen, fact = self._visible_keys()
        mask = EVERYTHING if seen is None else masks.of(axis.apply(seen))
        if self.queries is None:
            fact = assumed("these are attention weights; their scores are no product of queries and keys")
        elif self.changed and self.weights.numel() and fact is FROM_CALL:
            low, high = self._sums()
            rest = "; the rest is on a key that has no value" if self.columns else ""
            if max(abs(low - 1), abs(high - 1)) > NEAR:
                fact = Fact(How.CALL, f"rows sum to {low:.2f} – {high:.2f}{rest}")
        return OwnWeights(axis.apply(self.weights), mask), Basis(weights=fact, heads=axis.fact)

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


def as_tuple(out: Any) -> tuple[Tensor, ...]:
    """What a slicing function returned: one tensor or several."""
    return (out,) if isinstance(out, Tensor) else tuple(out)


def run_with_other(function: Any, args: Args, kwargs: Kwargs, tensor: Tensor, new: Tensor) -> Any:
    """Call the function with another tensor in place of this one."""
    args, kwargs = tree_map(lambda value: new if value is tensor else value, (args, kwargs))
    return function(*args, **kwargs)


def base_name(function: Any) -> str:
    """The name of a function, without the overload of an aten operator."""
    name: str = function.__name__
    return name.partition(".")[0]


@dataclass(frozen=True)
class WeightedProduct:
    """weights · values."""

    tensor: Tensor  # the weights as they are multiplied: (…, T, S), or (…, S, T) where transposed
    out: Tensor
    run: Callable[[Tensor], Any]  # the same product with other weights
    order: tuple[int, ...] | None  # permutes `out` to (…, T, D), its leading axes those of the weights; None: unknown
    refusal: str = ""  # why it cannot be changed
    values: Tensor | None = None  # (…, S, D); None where their layout is unknown

    def rows(self, softmax: TrackedSoftmax, axis: HeadAxis) -> Tensor:
        """(B, H, T): the number of each head's rows among all rows of the weights, (… · T)."""
        if self.refusal or self.order is None or softmax.keys < -2:
            raise ValueError(self.refusal or "its product sums over heads or queries")
        shape = self.tensor.mT.shape if softmax.transposed else self.tensor.shape
        numbers = torch.arange(shape[:-1].numel(), device=self.tensor.device).view(*shape[:-1], 1).expand(shape)
        numbers = softmax.restore(numbers.mT if softmax.transposed else numbers)
        wanted = softmax.weights.shape
        if numbers[..., :1].numel() != wanted[:-1].numel() or numbers.shape[-1] != wanted[-1]:
            raise ValueError(f"its weights, {tuple(wanted)}, are multiplied as {tuple(shape)}")
        if self.by_rows(self.out).shape[:-1] != shape[:-1]:
            raise ValueError(f"its weights, {tuple(shape)}, are multiplied with values of more texts or heads")
        return axis.apply(numbers[..., :1].reshape(*wanted[:-1], 1))[..., 0]

    def by_rows(self, out: Tensor) -> Tensor:
        """(…, T, D)."""
        assert self.order is not None
        return out.permute(self.order)

    def context(self, out: Tensor, rows: Tensor) -> Tensor:
        """(B, H, T, D)."""
        return self.by_rows(out).flatten(0, -2)[rows]

    def with_context(self, out: Tensor, rows: Tensor, context: Tensor) -> Tensor:
        """`out` with this context in it, in the layout of the model."""
        assert self.order is not None
        by_rows = self.by_rows(out)
        flat = by_rows.flatten(0, -2).index_copy(0, rows.flatten(), context.flatten(0, -2))
        new = flat.view(by_rows.shape).movedim(tuple(range(out.dim())), self.order)
        return new if new.stride() == out.stride() else torch.empty_like(out).copy_(new)  # the model may view it

    def with_weights(self, softmax: TrackedSoftmax, rows: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The model's weights, as they are multiplied, with the chosen queries' rows of `weights`, (B, H, T, S)."""
        tensor = self.tensor.mT if softmax.transposed else self.tensor
        new = weights[:, :, chosen].flatten(0, -2).to(tensor.dtype)
        changed = tensor.flatten(0, -2).index_copy(0, rows[:, :, chosen].flatten(), new).view(tensor.shape)
        return changed.mT if softmax.transposed else changed


def factors_of(args: Args, kwargs: Kwargs) -> list[Tensor]:
    """The two matrices of a product."""
    return [a for a in (*args, *(kwargs[n] for n in kwargs if n != "out")) if isinstance(a, Tensor)][-2:]


def of_matrices(function: Any, args: Args, kwargs: Kwargs, tensor: Tensor, out: Tensor) -> WeightedProduct:
    """By matmul, bmm, mm or baddbmm."""
    left, right = factors_of(args, kwargs)
    order, values = list(range(out.dim())), right
    if right is tensor:
        order[-2:], values = order[:-3:-1], left.mT
    refusal = ""
    if "baddbmm" in function.__name__ and kwargs.get("beta", 1) != 0:
        refusal = "baddbmm adds another tensor to the product of weights and values; use bmm"
    return WeightedProduct(
        tensor, out, partial(run_with_other, function, args, kwargs, tensor), tuple(order), refusal, values
    )


def of_einsum(
    function: Any,
    args: Args,
    kwargs: Kwargs,
    tensor: Tensor,
    term: str,
    result: str,
    keys: int,
    out: Tensor,
    other: tuple[str, Tensor] | None = None,
) -> WeightedProduct:
    """By einsum: term, result: axes of the weights and of the result; keys: that of the weights that is summed over;
    other: the axes of the values, and the values.
    """
    key = term[keys]
    rows = term.replace(key, "")
    order = None
    if "." not in term + result:
        order = _order_of_axes(rows, result, 0)
    elif term.startswith("...") and result.startswith("...") and "." not in result[3:]:
        order = _order_of_axes(rows[3:], result[3:], out.dim() - len(result[3:]))
    values = None if other is None else _values_of_einsum(*other, rows, key)
    return WeightedProduct(tensor, out, partial(run_with_other, function, args, kwargs, tensor), order, values=values)


def _order_of_axes(rows: str, result: str, lead: int) -> tuple[int, ...] | None:
    """How the axes of a result, after `lead` others, are permuted to those of the rows and one more; else None."""
    rest = [lead + i for i, axis in enumerate(result) if axis not in rows]
    if len(rest) != 1 or not all(axis in result for axis in rows):
        return None
    return (*range(lead), *(lead + result.index(axis) for axis in rows), *rest)


def _values_of_einsum(axes: str, values: Tensor, rows: str, key: str) -> Tensor | None:
    """(…, S, D), its leading axes in the order of the weights'."""
    if axes.startswith("..."):
        return values if axes[3:4] == key and len(axes) == 5 else values.mT if axes[4:] == key else None
    lead = [axis for axis in rows if axis in axes]
    if "." in axes or (lead and lead[0] != rows[0]) or len(set(axes)) < len(axes):
        return None
    rest = [axis for axis in axes if axis not in (*lead, key)]
    return values.permute([axes.index(axis) for axis in (*lead, key, *rest)]).flatten(len(lead) + 1) if rest else None


def without_edges(
    edit: CallEdit, own: OwnWeights, softmax: TrackedSoftmax, product: WeightedProduct, rows: Tensor, axis: HeadAxis
) -> tuple[OwnWeights, Tensor]:
    """A softmax and its product without the removed edges: the weights, and the product in the layout of the model."""
    assert edit.removed is not None
    hidden = ~edit.removed.dense(*own.sizes[2:], own.device)
    weights, multiplied = softmax.without_edges(hidden, product.tensor, axis)
    chosen = edit.rows()
    out = product.run(product.with_weights(softmax, rows, chosen, multiplied))
    kept = own.weights.index_copy(2, chosen, weights[:, :, chosen].to(own.weights.dtype))
    return changed(own, weights=kept, mask=own.mask & edit.removed), out


def with_other_edges(
    edit: CallEdit, own: OwnWeights, softmax: TrackedSoftmax, product: WeightedProduct, rows: Tensor, axis: HeadAxis
) -> tuple[OwnWeights, Tensor]:
    """The same with weights of another run in place of some."""
    if softmax.after_dropout or edit.removed is not None:
        raise ValueError("edges of another run cannot be put in while dropout is on, or while others are removed")
    live = edit.with_replaced(axis.apply(softmax.restore(product.tensor)))
    out = product.run(product.with_weights(softmax, rows, edit.rows(), live))
    return changed(own, weights=edit.with_replaced(own.weights)), out
