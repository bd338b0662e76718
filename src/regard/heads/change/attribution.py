"""Attribution: what cuts would cost, to first order, from one forward and one backward.

Each head gets a number a, 0 in this forward: it hands over context + a · (other − context), so that a = 1 is the cut.
The derivative of the loss by a is the estimate: the gradient times what the cut changes (attribution patching).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from regard.heads.calls.call import WatchedCall
from regard.heads.calls.edits import START, LayerEdit, Positions, Value
from regard.heads.intercept.intercept import intercept

HeadNumber = tuple[int, int]


@dataclass(frozen=True)
class _Tilt(LayerEdit):
    """Moves each head a little towards what a cut would make it hand over."""

    amounts: Tensor = field(default_factory=lambda: torch.zeros(0))  # (H,)

    def hand_over(self, context: Tensor, call: WatchedCall, positions: Positions = START) -> Tensor:
        other = super().hand_over(context.detach(), call, positions)
        return context + self.amounts[:, None, None].to(context.device, context.dtype) * (other - context.detach())


class _Tilts:
    """An editor, see edits.py: all heads that are asked for, in every layer."""

    removes_edges = everywhere = False

    def __init__(self, values: Mapping[HeadNumber, Value], sizes: Sequence[int]) -> None:
        self.values = values
        self.amounts = [torch.zeros(heads, dtype=torch.float64, requires_grad=True) for heads in sizes]

    def at(self, layer: int) -> LayerEdit | None:
        """What changes in this layer."""
        values = {head: value for (number, head), value in self.values.items() if number == layer}
        return _Tilt(layer, values, amounts=self.amounts[layer]) if values else None


def estimate(
    model: nn.Module,
    losses: Callable[[], Tensor],
    values: Mapping[HeadNumber, Value],
    sizes: Sequence[int],
    cuts: Sequence[Sequence[HeadNumber]],
    chosen: Sequence[int] | None,
) -> Tensor:
    """(N, 2) float64: by how much each cut would make the mean loss grow, and that of the chosen tokens; else NaN.

    losses: runs the model, (T,), NaN where a token has no prediction. sizes: the number of heads of each layer.
    """
    tilts = _Tilts(values, sizes)
    with torch.enable_grad(), intercept(model, editor=tilts):
        each = losses()
        metrics = [each[~each.isnan()].mean()] + ([] if chosen is None else [each[list(chosen)].mean()])
        result = torch.full((len(cuts), 2), torch.nan, dtype=torch.float64)
        for column, metric in enumerate(metrics):
            again = column + 1 < len(metrics)
            by_layer = torch.autograd.grad(metric, tilts.amounts, retain_graph=again, allow_unused=True)
            for row, heads in enumerate(cuts):
                found = [by_layer[layer] for layer, _ in heads]
                parts = [grad[head] for grad, (_, head) in zip(found, heads, strict=True) if grad is not None]
                result[row, column] = sum((part.double().cpu() for part in parts), torch.zeros((), dtype=torch.float64))
    return result
