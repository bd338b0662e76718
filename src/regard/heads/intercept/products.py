"""A product of weights and values, in whatever layout a model writes it: its rows as (B, H, T, D), and back.

The weights may have been reshaped and permuted between softmax and product. What was done to them is done once more to
the numbers of their rows, which then say where each row of each head is in the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.heads.calls.call import Args, Kwargs, OwnWeights, changed
from regard.heads.calls.edits import CallEdit
from regard.heads.calls.head_axis import HeadAxis
from regard.heads.intercept.tracked_softmax import TrackedSoftmax, run_with_other


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
        if self.refusal or self.order is None:
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
    transposed: bool,
    out: Tensor,
    other: tuple[str, Tensor] | None = None,
) -> WeightedProduct:
    """By einsum: term, result: axes of the weights and of the result; other: the axes of the values, and the values."""
    rows = term[:-2] + (term[-1] if transposed else term[-2])
    order = None
    if "." not in term + result:
        order = _order_of_axes(rows, result, 0)
    elif term.startswith("...") and result.startswith("...") and "." not in result[3:]:
        order = _order_of_axes(rows[3:], result[3:], out.dim() - len(result[3:]))
    values = None if other is None else _values_of_einsum(*other, rows, term[-2 if transposed else -1])
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
    return changed(own, weights=kept), out
