"""Three projections as one product: W_query, W_key and W_value side by side in memory.

They stay three modules with a parameter and a storage each: to optimizers, hooks, adapters and files nothing is
different. Only where all three are plain does one product with the memory they share stand for three.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as _everywhere
from torch.utils.dlpack import from_dlpack

from regard.attention.one_product import ROOMS, in_graph, in_order


def _slow_on_cpu() -> frozenset[torch.dtype]:
    """The 16-bit types that this CPU has no arithmetic for: their matrix product is many times slower than float32's."""
    if not torch.backends.mkldnn.is_available():  # as on Apple's chips, where nothing tells
        return frozenset()
    known = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    return frozenset(dtype for dtype, name in known.items() if not getattr(torch.ops.mkldnn, name)())


SLOW_ON_CPU = _slow_on_cpu()


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
        weights: list[Any] = [m._parameters["weight"] for m in (query, key, value)]
        biases: list[Any] = [m._parameters["bias"] for m in (query, key, value) if m._parameters["bias"] is not None]
        first = weights[0]
        if not (type(first) is type(weights[1]) is type(weights[2]) is nn.Parameter) or len(biases) not in (0, 3):
            return None
        if first.dtype in SLOW_ON_CPU and first.device.type == "cpu":
            return None
        if torch.compiler.is_compiling():
            return in_graph(x, weights, torch.cat(biases) if biases else None)
        room = self._rooms.get("weight")
        if room is None or torch._C._are_functorch_transforms_active():
            return None
        if not in_order(weights, room):
            self.move_out()
            return None
        if torch.is_grad_enabled():
            weight: Tensor = _ViewAll.apply(room, *weights)  # type: ignore[no-untyped-call]
            return F.linear(x, weight, torch.cat(biases) if biases else None)
        if not biases:
            return F.linear(x, room)
        bias = self._rooms.get("bias")
        return F.linear(x, room, bias if bias is not None and in_order(biases, bias) else torch.cat(biases))

    def joined(self) -> tuple[Tensor, Tensor | None] | None:
        """The three weights as one, and the three biases, where each lie in one room; else None."""
        found: list[Tensor | None] = []
        for kind in ("weight", "bias"):
            three = self._three(kind)
            room = self._rooms.get(kind)
            if kind == "bias" and all(p is None for p in three):
                found.append(None)
            elif room is None or any(type(p) is not nn.Parameter for p in three) or not in_order(three, room):
                return None
            else:
                found.append(room)
        assert found[0] is not None
        return found[0], found[1]

    def _three(self, kind: str) -> list[Any]:
        return [getattr(m, kind, None) for m in (self.W_query, self.W_key, self.W_value)]

    def move_out(self) -> None:
        """Let the three run one by one, and hold on to nothing."""
        self._rooms = {}

    def lay_side_by_side(self) -> None:
        """Move the projections' weights into one room, and their biases; they stay parameters with a storage each."""
        before = self._rooms
        self.move_out()
        for kind in ("weight", "bias"):
            three = self._three(kind)
            if any(type(p) is not nn.Parameter for p in three):
                return
            if kind in before and in_order(three, before[kind]):
                self._rooms[kind] = before[kind]
                continue
            if not _may_move(three):
                return
            with torch.no_grad():
                room = self._rooms[kind] = torch.cat([p.data for p in three])
                ROOMS[room.data_ptr()] = room
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
        or "weight" not in module._parameters  # tensors in their place, as in the copies of DataParallel
        or "bias" not in module._parameters
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


class _ViewAll(torch.autograd.Function):
    """torch.cat of weights that lie one behind the other in a room, without the copy.

    Anew for every step, though that is a call into Python in backward: a tensor made of the three once and for all
    would hold on to autograd's nodes, on the stream where they were made, and no CUDA graph could record a step.
    """

    @staticmethod
    def forward(ctx: Any, room: Tensor, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(*weights)  # so that torch notices a weight changed before backward
        return room.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, *grads[0].split_with_sizes([w.shape[0] for w in ctx.saved_tensors])
