"""Whether a cut is whole: the weights of a head are multiplied with its values, and with nothing else.

A cut replaces weights · values. Where a model multiplies the same weights once more, as with relative positions (w @ v
+ w · r), the rest of the head would stay in the output. So everything that is computed from a softmax is followed while
a model is cut, and a second product is an error. Reading weights (views, means, returning them) is none.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor

from regard.heads.calls.call import Args, Kwargs
from regard.heads.calls.score_origin import tensors_among
from regard.heads.intercept.tracked_softmax import TrackedSoftmax

_PRODUCTS = {
    *("matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "mv", "dot", "vdot", "inner", "einsum", "tensordot"),
    *("addmm", "addmv", "addbmm", "baddbmm", "linear", "bilinear", "chain_matmul", "linalg_multi_dot", "embedding_bag"),
    *("conv1d", "conv2d", "conv3d", "scaled_dot_product_attention", "index_add", "index_add_", "scatter_add"),
}
_ELEMENTWISE = {  # without underscores
    *("mul", "multiply", "rmul", "imul", "div", "divide", "truediv", "itruediv", "true_divide", "addcmul", "where"),
    *("add", "radd", "iadd", "sub", "subtract", "rsub", "isub"),
}


class WeightUses:
    """Follows what is made of softmaxes while a model is cut; `softmax_of`: the softmax that a tensor holds."""

    def __init__(self, softmax_of: Callable[[Any], TrackedSoftmax | None]) -> None:
        self.softmax_of = softmax_of
        self.is_on = False
        self.derived: dict[int, tuple[weakref.ref[Tensor], object]] = {}  # by id: the softmax it is computed from
        self.used: dict[object, tuple[object, str]] = {}  # softmaxes in other products: what each is a part of, where
        self.cut: dict[object, str] = {}  # those whose product was cut: the module
        self.wholes: dict[object, str] = {}  # those of which a part was cut

    def forget(self) -> None:
        """Stop following the softmaxes so far."""
        for followed in (self.derived, self.used, self.cut, self.wholes):
            followed.clear()

    def confirm(self, softmax: TrackedSoftmax, module: str) -> None:
        """The product of this softmax with its values is cut; raise ValueError where there was another product."""
        parts = [where for root, where in self.used.values() if root is softmax.origin]
        known = [self.used[one][1] for one in (softmax.origin, softmax.root) if one in self.used]
        if others := known + parts:
            raise ValueError(_second(others[0]))
        self.cut[softmax.origin] = module
        if softmax.root is not None:
            self.wholes[softmax.root] = module

    def check(self, name: str, args: Args, kwargs: Kwargs) -> None:
        """A function is about to run: raise ValueError where it multiplies weights whose product was cut."""
        if self.cut and name in _PRODUCTS:
            for tensor in tensors_among((*args, *kwargs.values())):
                self._refuse_second(self._origin(tensor), name)

    def follow(self, name: str, args: Args, kwargs: Kwargs, out: Any) -> None:
        """A function ran: what it makes of weights is followed, and where they are multiplied."""
        results = [one for one in tensors_among((out,), longest=1024) if one.is_floating_point()]
        for tensor in tensors_among((*args, *kwargs.values()), longest=1024):
            if (origin := self._origin(tensor)) is None:
                continue
            grows = name.strip("_") in _ELEMENTWISE and any(one.numel() > tensor.numel() for one in results)
            if name not in _PRODUCTS and not grows:
                for one in results:
                    self._add(one, origin)
            elif origin not in self.cut:
                softmax = self.softmax_of(tensor)
                self.used.setdefault(origin, (None if softmax is None else softmax.root, name))
            elif grows:
                self._refuse_second(origin, name)
            return
        for one in results:
            if (softmax := self.softmax_of(one)) is not None:  # a new one
                self._add(one, softmax.origin)

    def _refuse_second(self, origin: object, name: str) -> None:
        module = self.cut.get(origin) or self.wholes.get(origin)
        if origin is not None and module is not None:
            raise ValueError(f"cannot cut the attention in {module}: {_second(name)}")

    def _origin(self, tensor: Tensor) -> object | None:
        entry = self.derived.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def _add(self, tensor: Tensor, origin: object) -> None:
        softmax = self.softmax_of(tensor)
        if softmax is not None and origin not in self.cut:  # a slice is followed by itself
            origin = softmax.origin
        key, derived = id(tensor), self.derived
        derived[key] = weakref.ref(tensor, lambda _: derived.pop(key, None)), origin


def _second(name: str) -> str:
    return (
        f"its weights are multiplied a second time, by {name}, so that its heads hand over more than one product, and "
        "would be cut in part"
    )
