"""Copies of what a model passed to its attention: the model may change its own tensors afterwards."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor

from regard.attention.masks import Mask
from regard.heads.calls.call import TextIds, WatchedCall, changed


class Copies:
    """Makes one copy of each mask and bias, T × S numbers that a model often uses in many layers."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], Tensor] = {}
        self._small_ones: dict[int, tuple[Tensor, int, Tensor]] = {}  # by id: tensor, version, copy
        self._functions: dict[FunctionType, FunctionType] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """The copy of this tensor, made before or now."""
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        # The same memory may hold other values by now, so the copy is compared before it is shared.
        if place not in self._made or not torch.equal(self._made[place], tensor):
            self._made[place] = copy_of(tensor)
        return self._made[place]

    def inside(self, thing: Any) -> Any:
        """The same mask, list or function with copies of the tensors in it."""
        if isinstance(thing, Tensor):
            return self.of(thing)
        if isinstance(thing, Mask) and vars(thing):
            own = copy(thing)
            vars(own).update({name: self.inside(value) for name, value in vars(thing).items()})
            return own
        if type(thing) in (tuple, list):
            return type(thing)(self.inside(item) for item in thing)
        if type(thing) is dict:
            return {name: self.inside(value) for name, value in thing.items()}
        if isinstance(thing, FunctionType) and (thing.__closure__ or thing.__defaults__ or thing.__kwdefaults__):
            return self._function(thing)
        return thing

    def of_call(self, call: WatchedCall, keep: bool) -> WatchedCall:
        """The call with copies of what is recorded of it: texts, context, and all the rest where that is kept."""
        context, origin = call.context, call.origin
        call = changed(call, context=None if context is None else copy_of(context))
        known: dict[str, Any] = {} if origin.tokens is None else {"tokens": self._small(origin.tokens)}
        for name in ("query_text", "key_text"):
            if (text := getattr(origin, name)) is not None:
                known[name] = TextIds(self._small(text.ids), None if text.real is None else self._small(text.real))
        if not keep:
            return call.with_origin(**known)
        numbers: dict[str, Any] = {"mask": self.inside(call.attention.mask)}
        for name in ("q", "k", "weights", "alibi", "bias"):
            if (value := getattr(call.attention, name, None)) is not None:
                numbers[name] = self.of(value) if name == "bias" else copy_of(value)
        if origin.real is not None:
            known["real"] = copy_of(origin.real)
        return call.with_attention(**numbers).with_origin(**known)

    def _small(self, tensor: Tensor) -> Tensor:
        """The copy of a small tensor, one for all layers that have this very tensor, as long as it is not changed."""
        if tensor.is_inference():  # which counts no changes
            return copy_of(tensor)
        original, version, made = self._small_ones.get(id(tensor), (None, -1, tensor))
        if original is not tensor or version != tensor._version:
            made = copy_of(tensor)
            self._small_ones[id(tensor)] = tensor, tensor._version, made
        return made

    def _function(self, function: FunctionType) -> FunctionType:
        if function not in self._functions:
            cells = tuple(CellType() for _ in function.__closure__ or ())
            own = FunctionType(function.__code__, function.__globals__, function.__name__, None, cells)
            self._functions[function] = own  # before its cells are filled: a function may refer to itself
            own.__defaults__ = self.inside(function.__defaults__)
            own.__kwdefaults__ = self.inside(function.__kwdefaults__)
            for cell, theirs in zip(cells, function.__closure__ or (), strict=True):
                with suppress(ValueError):  # a cell may be empty
                    cell.cell_contents = self.inside(theirs.cell_contents)
        return self._functions[function]


def copy_of(tensor: Tensor) -> Tensor:
    """A copy as small as the tensor: axes that were expanded are expanded again."""
    small = tensor.detach()
    if 0 not in tensor.stride():
        return small.clone()
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            small = small.narrow(axis, 0, 1)
    return small.clone().expand(tensor.shape)
