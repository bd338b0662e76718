"""Three projections as one product: W_query, W_key and W_value side by side in memory.

They stay three modules with a parameter and a storage each: to optimizers, hooks, adapters and files nothing is
different. Only where all three are plain does one product with the memory they share stand for three.
"""

from __future__ import annotations

from typing import Any, TypeGuard
from weakref import WeakValueDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as _everywhere
from torch.utils.checkpoint import checkpoint
from torch.utils.dlpack import from_dlpack

from regard.checks import exporting


def _slow_on_cpu() -> frozenset[torch.dtype]:
    """The 16-bit types that this CPU has no arithmetic for: their matrix product is many times slower than float32's."""
    if not torch.backends.mkldnn.is_available():  # as on Apple's chips, where nothing tells
        return frozenset()
    known = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    return frozenset(dtype for dtype, name in known.items() if not getattr(torch.ops.mkldnn, name)())


SLOW_ON_CPU = _slow_on_cpu()

# Up to so many bytes, a GPU copies the weights together sooner than a graph can ask Python whether it must.
SMALL = 32 << 20


class SideBySide(nn.Module):
    """A module with projections W_query, W_key and W_value that can run as one."""

    W_query: nn.Linear
    W_key: nn.Linear
    W_value: nn.Linear
    _rooms: dict[str, Tensor]  # memory of the three weights, and of the three biases, one behind the other

    def __init__(self) -> None:
        super().__init__()
        self._rooms = {}
        self.register_load_state_dict_post_hook(_lay_again)  # type: ignore[no-untyped-call]

    def as_one(self, x: Tensor) -> Tensor | None:
        """Queries, keys and values of x, one behind the other; or None where they must be made one by one.

        One product is up to 5% of the layer faster than three. The three parameters lie side by side in one room,
        so the one weight is that room, not a copy; where they have been moved out (or a hook, an adapter or a
        transform stands in their place), the answer is None and nothing is assumed.
        """
        # Read straight from the dicts: this runs on every call, and nn.Module's attributes are slow to find.
        children = self._modules
        query, key, value = children["W_query"], children["W_key"], children["W_value"]
        if not (plain(query) and plain(key) and plain(value)):
            return None
        linears = (query, key, value)
        weights: list[Any] = [m._parameters.get("weight") for m in linears]
        biases: list[Any] = [m.bias for m in linears if m.bias is not None]
        if any(type(w) is not nn.Parameter for w in weights) or len(biases) not in (0, 3):
            return None
        if weights[0].dtype in SLOW_ON_CPU and weights[0].device.type == "cpu":
            return None
        if torch.compiler.is_compiling():
            bias = torch.cat(biases) if biases else None
            # Of the parameters, not of the room: a graph for several sizes knows no plain tensor's number of bytes.
            nbytes = sum(w.numel() for w in weights) * weights[0].itemsize
            if "weight" in self._rooms and _looks_as_it_runs(x, nbytes):
                joined: Tensor = project(x, *weights, bias)
                return joined
            return F.linear(x, _cat(weights), bias)
        room = self._rooms.get("weight")
        if room is None or torch._C._are_functorch_transforms_active():
            return None
        if not _in_order(weights, room):
            self._rooms.clear()
            return None
        if torch.is_grad_enabled():
            weight: Tensor = _ViewAll.apply(room, *weights)  # type: ignore[no-untyped-call]
            return F.linear(x, weight, torch.cat(biases) if biases else None)
        if not biases:
            return F.linear(x, room)
        bias = self._rooms.get("bias")
        return F.linear(x, room, bias if bias is not None and _in_order(biases, bias) else torch.cat(biases))

    def joined(self) -> tuple[Tensor, Tensor | None] | None:
        """The three weights as one, and the three biases, where each lie in one room; else None."""
        found: list[Tensor | None] = []
        for kind in ("weight", "bias"):
            three: list[Any] = [getattr(m, kind, None) for m in (self.W_query, self.W_key, self.W_value)]
            room = self._rooms.get(kind)
            if kind == "bias" and all(p is None for p in three):
                found.append(None)
            elif room is None or any(type(p) is not nn.Parameter for p in three) or not _in_order(three, room):
                return None
            else:
                found.append(room)
        assert found[0] is not None
        return found[0], found[1]

    def lay_side_by_side(self) -> None:
        """Move the projections' weights into one room, and their biases; they stay parameters with a storage each."""
        before, self._rooms = self._rooms, {}
        for kind in ("weight", "bias"):
            three: list[Any] = [getattr(m, kind, None) for m in (self.W_query, self.W_key, self.W_value)]
            if any(type(p) is not nn.Parameter for p in three):
                return
            if kind in before and _in_order(three, before[kind]):
                self._rooms[kind] = before[kind]
                continue
            if not _may_move(three):
                return
            with torch.no_grad():
                room = self._rooms[kind] = torch.cat([p.data for p in three])
                _ROOMS[room.data_ptr()] = room
                for p, part in zip(three, room.split([p.shape[0] for p in three]), strict=True):
                    # By way of DLPack each gets a storage of its own, so that saving one does not save all.
                    p.data = from_dlpack(part)

    def _apply(self, fn: Any, recurse: bool = True) -> SideBySide:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.lay_side_by_side()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rooms": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.lay_side_by_side()


def plain(module: nn.Module | None) -> TypeGuard[nn.Linear]:
    """Is this an nn.Linear that nobody listens to? Else it must really be called."""
    return type(module) is nn.Linear and not (
        "forward" in module.__dict__  # replaced on the instance, as some libraries do
        or module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _everywhere._global_forward_hooks
        or _everywhere._global_forward_pre_hooks
        or _everywhere._global_backward_hooks
        or _everywhere._global_backward_pre_hooks
    )


def _may_move(parameters: list[Tensor]) -> bool:
    """May these get other memory? Not if somebody shares it, nor where DLPack may not be trusted with a slice."""
    first = parameters[0]
    return (
        first.device.type in ("cpu", "cuda")
        and not torch.is_inference_mode_enabled()
        and len({(p.dtype, p.device, p.shape[1:]) for p in parameters}) == 1
        and all(p.untyped_storage().nbytes() == p.nbytes for p in parameters)
        and not (first.device.type == "cpu" and any(p.is_shared() for p in parameters))
    )


def _lay_again(layer: nn.Module, _: Any) -> None:
    """After load_state_dict(assign=True) the weights are elsewhere."""
    assert isinstance(layer, SideBySide)
    layer.lay_side_by_side()


def _in_order(parameters: list[Tensor], room: Tensor) -> bool:
    """Are these still the memory of the room, one behind the other? The room keeps it from being used for others."""
    place = room.data_ptr()
    for p in parameters:
        if p.data_ptr() != place or p.dtype is not room.dtype or not p.is_contiguous():
            return False
        place += p.nbytes
    return place == room.data_ptr() + room.nbytes


# Rooms by their address, for compiled graphs; each lives as long as its layer.
_ROOMS: WeakValueDictionary[int, Tensor] = WeakValueDictionary()


def _as_room(*weights: Tensor) -> Tensor:
    """The weights as one: their room where they lie in one, else a copy."""
    room = _ROOMS.get(weights[0].data_ptr())
    return room if room is not None and _in_order(list(weights), room) else torch.cat(weights)


@torch.library.custom_op(
    "regard::project",
    mutates_args=(),
    schema="(Tensor x, Tensor query, Tensor key, Tensor value, Tensor? bias) -> Tensor",
)
def project(x: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """x times three weights as one. A compiled graph cannot know that they lie side by side: this looks as it runs."""
    return F.linear(x, _as_room(query, key, value), bias)


@torch.library.custom_op(
    "regard::project_back", mutates_args=(), schema="(Tensor grad, Tensor query, Tensor key, Tensor value) -> Tensor"
)
def project_back(grad: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The gradient of x in project()."""
    return grad @ _as_room(query, key, value)


@project.register_fake
def _(x: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], query.shape[0] + key.shape[0] + value.shape[0])


@project_back.register_fake
def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return grad.new_empty(*grad.shape[:-1], query.shape[1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.with_bias = inputs[4] is not None


def _project_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, *weights = ctx.saved_tensors
    rows = grad.flatten(0, -2)
    of_x = project_back(grad, *weights) if ctx.needs_input_grad[0] else None
    of_weights = (rows.mT @ x.flatten(0, -2)).split_with_sizes([w.shape[0] for w in weights])
    return of_x, *of_weights, rows.sum(0) if ctx.with_bias else None


project.register_autograd(_project_backward, setup_context=_keep)


def _looks_as_it_runs(x: Tensor, nbytes: int) -> bool:
    """Shall a graph call project()? Only for big weights on a GPU; exports, autocast and transforms know it not."""
    return not (
        x.device.type != "cuda"
        or nbytes <= SMALL
        or exporting()
        or torch.is_autocast_enabled(x.device.type)
        or torch._C._are_functorch_transforms_active()
    )


def _cat(weights: list[Tensor]) -> Tensor:
    """torch.cat for compiled graphs: made again in backward, where it would otherwise be kept in memory until then."""
    if torch.is_grad_enabled() and not exporting():
        found: Tensor = checkpoint(lambda *parts: torch.cat(parts), *weights, use_reentrant=False)
        return found
    return torch.cat(weights)


class _ViewAll(torch.autograd.Function):
    """torch.cat of weights that lie one behind the other in a room, without the copy."""

    @staticmethod
    def forward(ctx: Any, room: Tensor, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(*weights)  # so that torch notices a weight changed before backward
        return room.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, *grads[0].split_with_sizes([w.shape[0] for w in ctx.saved_tensors])
