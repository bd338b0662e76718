"""One product with three weights in a compiled graph, which cannot know that they lie side by side in memory.

On a GPU an operator of our own looks as it runs; elsewhere a graph copies the three together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.arguments import exporting


def in_order(parameters: list[Tensor], room: Tensor) -> bool:
    """Are these still the memory of the room, one behind the other? The room keeps it from being used for others."""
    place = room.data_ptr()
    for p in parameters:
        if p.data_ptr() != place or p.dtype is not room.dtype or not p.is_contiguous():
            return False
        place += p.nbytes
    return place == room.data_ptr() + room.nbytes


# Rooms by their address, for compiled graphs; each lives as long as its layer.
ROOMS: WeakValueDictionary[int, Tensor] = WeakValueDictionary()


def as_room(*weights: Tensor) -> Tensor:
    """The weights as one: their room where they lie in one, else a copy."""
    room = ROOMS.get(weights[0].data_ptr())
    return room if room is not None and in_order(list(weights), room) else torch.cat(weights)


# Plain operators, without an autograd formula of their own: torch.library.custom_op would add 30 µs of Python to a call.
# The price: torch keeps no graph that learns through them in its cache of traced graphs, only in that of kernels.
_library = torch.library.Library("regard", "FRAGMENT")


def _operator(name: str, schema: str, run: Callable[..., Any], shape: Callable[..., Any]) -> None:
    _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    for kind in ("CPU", "CUDA"):
        _library.impl(name, run, kind)
    torch.library.register_fake(f"regard::{name}", shape)


def _project(x: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    _check_not_learning(x, query, key, value)
    return F.linear(x, as_room(query, key, value), bias)


def _project_back(grad: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    _check_not_learning(grad, query, key, value)
    return grad @ as_room(query, key, value)


def _project_back_both(grad: Tensor, x: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    return _project_back(grad, query, key, value), grad.flatten(0, -2).mT @ x.flatten(0, -2)


def _check_not_learning(*tensors: Tensor) -> None:
    """Graphs run with gradients off; where they are on, somebody wants a derivative that is not there."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        raise RuntimeError(
            "a compiled layer has no second derivatives; call the layer as it is, without torch.compile, to have them"
        )


_weights = "Tensor query, Tensor key, Tensor value"
_operator(
    "project", f"(Tensor x, {_weights}, Tensor? bias) -> Tensor", _project,
    lambda x, query, key, value, bias: x.new_empty(*x.shape[:-1], query.shape[0] + key.shape[0] + value.shape[0]),
)  # fmt: skip
_operator(
    "project_back", f"(Tensor grad, {_weights}) -> Tensor", _project_back,
    lambda grad, query, key, value: grad.new_empty(*grad.shape[:-1], query.shape[1]),
)  # fmt: skip
_operator(
    "project_back_both", f"(Tensor grad, Tensor x, {_weights}) -> (Tensor, Tensor)", _project_back_both,
    lambda grad, x, query, key, value: (x.new_empty(x.shape), grad.new_empty(grad.shape[-1], x.shape[-1])),
)  # fmt: skip


class _Project(torch.autograd.Function):
    """x times three weights as one. A compiled graph cannot know that they lie side by side: this looks as it runs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, query, key, value)
        ctx.with_bias = bias is not None
        found: Tensor = torch.ops.regard.project(x, query, key, value, bias)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        grad, rows = grads[0], grads[0].flatten(0, -2)
        of_x, of_weights = None, None
        if ctx.needs_input_grad[0] and any(ctx.needs_input_grad[1:4]):
            of_x, of_weights = torch.ops.regard.project_back_both(grad, x, *weights)
        elif ctx.needs_input_grad[0]:
            of_x = torch.ops.regard.project_back(grad, *weights)
        else:
            of_weights = rows.mT @ x.flatten(0, -2)
        parts = (None,) * 3 if of_weights is None else of_weights.split_with_sizes([w.shape[0] for w in weights])
        return of_x, *parts, rows.sum(0) if ctx.with_bias else None


def in_graph(x: Tensor, weights: list[Any], bias: Tensor | None) -> Tensor:
    """x times the three weights as one, as a graph does it best."""
    if not _looks_as_it_runs(x):
        return F.linear(x, _cat(weights), bias)
    query, key, value = weights
    return project(x, query, key, value, bias)


def project(x: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """x times three weights as one; their room where they lie in one, else a copy."""
    found: Tensor = _Project.apply(x, query, key, value, bias)  # type: ignore[no-untyped-call]
    return found


def _looks_as_it_runs(x: Tensor) -> bool:
    """Shall a graph call project()? On a GPU, where copies count; exports, autocast and transforms know it not."""
    return not (
        x.device.type != "cuda"
        or exporting()
        or torch.is_autocast_enabled(x.device.type)
        or torch._C._are_functorch_transforms_active()
    )


def _cat(weights: list[Tensor]) -> Tensor:
    """torch.cat for compiled graphs: made again in backward, where it would otherwise be kept in memory until then."""
    if torch.is_grad_enabled() and not exporting() and not torch._C._are_functorch_transforms_active():
        found: Tensor = checkpoint(lambda *parts: torch.cat(parts), *weights, use_reentrant=False)
        return found
    return torch.cat(weights)
