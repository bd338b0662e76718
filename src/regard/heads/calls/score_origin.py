"""Which tensors of a model are scores: products of queries and keys, followed until their softmax.

A softmax over scores is attention, and if what follows it is not understood, that is said. A softmax over anything else
may be over a vocabulary, over experts or over features.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor, nn

# Functions after which a tensor is not scores any more.
_ENDS = {
    *("linear", "addmm", "matmul", "bmm", "mm", "baddbmm", "__matmul__", "einsum", "conv1d", "conv2d", "conv3d"),
    *("layer_norm", "rms_norm", "group_norm", "batch_norm", "embedding", "scaled_dot_product_attention", "bilinear"),
}

_MIX_HEADS = {"linear", "conv2d", "einsum", "matmul", "__matmul__"}  # talking heads: learned mixtures of all heads


class Memory(NamedTuple):
    """How the queries of a product lie in memory: their shape and their strides."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def heads_axis(self) -> int | None:
        """The axis whose steps are one head wide: a projection has its heads side by side; None where it was copied."""
        shape, strides = self
        if len(shape) < 4 or strides[-1] != 1 or strides[-2] <= shape[-1]:
            return None
        found = [axis for axis in range(-len(shape), -2) if strides[axis] == shape[-1] and shape[axis] > 1]
        return found[0] if len(found) == 1 else None


class ScoreOrigins:
    """The scores that are alive, each with the queries that it was computed from."""

    def __init__(self) -> None:
        self.alive: dict[int, tuple[weakref.ref[Tensor], Memory]] = {}

    def product(self, left: Tensor, right: Tensor, out: Any) -> None:
        """A matrix product: scores, if both are computed from the input and have the same texts."""
        batched = left.dim() > 2 and right.dim() > 2
        if isinstance(out, Tensor) and (batched or left.dim() == right.dim()) and not (learned(left) or learned(right)):
            queries, keys = (Memory(tuple(t.shape), t.stride()) for t in (left, right.mT))
            self._add(out, queries if queries.heads_axis is not None or right.dim() < 3 else keys)

    def follow(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """A function was called: what it makes of scores are scores."""
        target = args[0] if name == "__setitem__" else out
        if isinstance(target, (tuple, list)):  # slices, or the largest scores and where they are
            for one in tensors_among((target,)):
                self.follow(name, args, kwargs, one)
            return
        if not isinstance(target, Tensor) or target.dim() < 2 or not target.is_floating_point():
            return
        ends = name in _ENDS
        if ends and (name not in _MIX_HEADS or target.dim() < 4):
            return
        values = list(tensors_among((*args, *kwargs.values())))
        for value in values:
            if (memory := self.of(value)) is not None:
                if not ends or (
                    target.shape == value.shape and (name in ("linear", "conv2d") or any(map(learned, values)))
                ):
                    self._add(target, memory)
                return

    def of(self, tensor: Tensor) -> Memory | None:
        """The queries that these scores were computed from; None where these are no scores."""
        entry = self.alive.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def _add(self, tensor: Tensor, memory: Memory) -> None:
        key, alive = id(tensor), self.alive
        alive[key] = weakref.ref(tensor, lambda _: alive.pop(key, None)), memory


def learned(tensor: Tensor) -> bool:
    """Is this a parameter, or a view of one?"""
    return isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter)


def tensors_among(values: tuple[Any, ...], longest: int = 7) -> Iterator[Tensor]:
    """The tensors among the arguments of a function, also in lists that are not too long to look through."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)) and len(value) <= longest:
            yield from (one for one in value if isinstance(one, Tensor))
