"""What becomes of attention weights beside their product with the values: one product is reported, and can be cut.

A cut replaces weights · values. Where a model multiplies the same weights once more, as with relative positions (w @ v
+ w · r), or where numbers that it made of them join what came of the product, the rest of the head would stay in the
output. So everything that is computed from a softmax is followed, and while a model is cut, everything that is computed
from a context. A second use is a warning in a watch and an error in a cut. Reading weights (views, means, returning
them) is none.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from regard.heads.calls.call import Args, Kwargs
from regard.heads.calls.edits import LayerEdit
from regard.heads.calls.score_origin import tensors_among
from regard.heads.calls.wiring import version_of
from regard.heads.intercept.tracked_softmax import TrackedSoftmax

if TYPE_CHECKING:
    from regard.heads.intercept.interceptor import Interceptor
    from regard.heads.intercept.watched_model import WatchedModel

_PRODUCTS = {
    *("matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "mv", "dot", "vdot", "inner", "einsum", "tensordot"),
    *("addmm", "addmv", "addbmm", "baddbmm", "linear", "bilinear", "chain_matmul", "linalg_multi_dot", "embedding_bag"),
    *("conv1d", "conv2d", "conv3d", "scaled_dot_product_attention", "index_add", "index_add_", "scatter_add"),
}
_ELEMENTWISE = {  # without underscores
    *("mul", "multiply", "rmul", "imul", "div", "divide", "truediv", "itruediv", "true_divide", "addcmul", "where"),
    *("add", "radd", "iadd", "sub", "subtract", "rsub", "isub"),
}
LEAVING = {"numpy", "__array__", "__dlpack__", "tolist", "item", "__float__"}  # numbers outside of torch
_MOST = 1024  # tensors in a list that are looked at


class ReportedProduct(NamedTuple):
    """Weights were multiplied with their values: in which module, and was that cut?"""

    module: str
    is_cut: bool


class Attended(NamedTuple):
    """An attention call: what its weights are made of, and what is cut of it."""

    numbers: tuple[Any, ...]  # its weights, or its queries, keys, mask and options
    versions: list[int]
    layer: int
    cut: object

    def is_like(self, other: Attended) -> bool:
        """Has it the same weights? Tensors that were written over since are no proof."""
        return self.versions == _versions(self.numbers) and all(map(_equal, self.numbers, other.numbers))


class WeightUses:
    """Follows what is made of softmaxes."""

    def __init__(self, interceptor: Interceptor) -> None:
        self.interceptor = interceptor
        self.derived: dict[int, tuple[weakref.ref[Tensor], object]] = {}  # by id: the softmax it is computed from
        self.contexts: dict[int, tuple[weakref.ref[Tensor], object]] = {}  # by id: what is computed from cut products
        self.used: dict[object, tuple[object, str]] = {}  # softmaxes in other products: what each is a part of, how
        self.products: dict[object, ReportedProduct] = {}  # by softmax: those with its values
        self.wholes: dict[object, ReportedProduct] = {}  # those of a part of it
        self.is_cutting = False  # is a product cut, whose output is not known yet?

    def forget(self) -> None:
        """Stop following the softmaxes so far."""
        for followed in (self.derived, self.contexts, self.used, self.products, self.wholes):
            followed.clear()

    def confirm(self, softmax: TrackedSoftmax, module: str, is_cut: bool) -> None:
        """A softmax is multiplied with its values; a cut raises ValueError where there was another use."""
        product = ReportedProduct(module, is_cut)
        parts = [how for root, how in self.used.values() if root is softmax.origin]
        if others := [self.used[one][1] for one in (softmax.origin, softmax.root) if one in self.used] + parts:
            self._refuse(product, others[0])
        self.products[softmax.origin] = product
        if softmax.root is not None:
            self.wholes[softmax.root] = product
        self.is_cutting = is_cut

    def check_once(self, numbers: tuple[Any, ...], edits: Sequence[tuple[WatchedModel, LayerEdit]]) -> None:
        """An attention call runs: raise ValueError where its module attends twice alike, and one of the two is cut."""
        model = self.interceptor.running[0]
        if all(one.editor is None for one in self.interceptor.running):
            return
        cut = [(one.values.keys(), one.edge_heads, one.by_text, one.find_edges is None) for _, one in edits]
        now = Attended(numbers, _versions(numbers), model.next_layer(), cut)
        for before in model.calls[-1].attended:
            if before.cut != cut and before.is_like(now):
                raise ValueError(
                    f"cannot cut the attention in {self.interceptor.module_name()}: it attends twice with the same "
                    f"weights, as layers {before.layer} and {now.layer}, so that a head of one of them is a part of a "
                    "head; cut the same in both"
                )
        model.calls[-1].attended.append(now)

    def check(self, name: str, args: Args, kwargs: Kwargs) -> None:
        """A function is about to run: does it multiply weights once more?"""
        if self.products and (name in _PRODUCTS or name in LEAVING):
            for tensor in tensors_among((*args, *kwargs.values())):
                self._use_again(self._origin(tensor), name)

    def follow(self, name: str, args: Args, kwargs: Kwargs, out: Any) -> None:
        """A function ran: what it makes of weights is followed, and where they are multiplied."""
        tensors = list(tensors_among((*args, *kwargs.values()), longest=_MOST))
        results = [args[0]] if name == "__setitem__" else list(tensors_among((out,), longest=_MOST))
        origins = [(tensor, origin) for tensor in tensors if (origin := self._origin(tensor)) is not None]
        holds_context = self.is_cutting or any(_is_in(self.contexts, tensor) for tensor in tensors)
        if not origins:
            for one in results:
                if (softmax := self._softmax_of(one)) is not None:  # a new one
                    self._add(one, softmax.origin)
        elif name in _PRODUCTS or name in LEAVING:
            self._multiplied(origins, name)
        elif name.strip("_") in _ELEMENTWISE and _are_larger(results, [tensor for tensor, _ in origins]):
            self._multiplied(origins, name)
            self._use_again(origins[0][1], name)
        else:
            self._read(origins, name, results, holds_context)
            holds_context = False
        if holds_context and self.derived:
            _put(self.contexts, results, None)
        elif not self.derived:
            self.contexts.clear()
        self.is_cutting = False

    def _read(
        self, origins: list[tuple[Tensor, object]], name: str, results: list[Tensor], holds_context: bool
    ) -> None:
        """Numbers were made of weights; they must not join a context."""
        for _, origin in origins if holds_context else ():
            self._joins_context(origin, name)
        for one in results:
            self._add(one, origins[0][1])

    def _multiplied(self, origins: list[tuple[Tensor, object]], name: str) -> None:
        for tensor, origin in origins:
            if origin not in self.products:
                softmax = self._softmax_of(tensor)
                self.used.setdefault(origin, (None if softmax is None else softmax.root, name))

    def _use_again(self, origin: object, name: str) -> None:
        product = self.products.get(origin) or self.wholes.get(origin)
        if origin is not None and product is not None:
            self._refuse(product, name)

    def _joins_context(self, origin: object, name: str) -> None:
        """Numbers made of weights and numbers made of a cut product become one tensor."""
        product = self.products.get(origin) or self.wholes.get(origin)
        if product is not None and product.is_cut:
            self._refuse(product, name, joins=True)

    def _refuse(self, product: ReportedProduct, name: str, joins: bool = False) -> None:
        if product.is_cut:
            why = _joined(name) if joins else _second(name)
            raise ValueError(f"cannot cut the attention in {product.module}: {why}")
        if name not in LEAVING:
            self.interceptor.warn_of_second_product(product.module)

    def _softmax_of(self, tensor: Tensor) -> TrackedSoftmax | None:
        return self.interceptor.softmaxes.softmax_of(tensor)

    def _origin(self, tensor: Tensor) -> object | None:
        entry = self.derived.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def _add(self, tensor: Tensor, origin: object) -> None:
        softmax = self._softmax_of(tensor)
        if softmax is not None and origin not in self.products:  # a slice is followed by itself
            origin = softmax.origin
        _put(self.derived, [tensor], origin)


def _versions(numbers: Iterable[Any]) -> list[int]:
    return [version_of(one) for one in numbers if isinstance(one, Tensor)]


def _equal(one: Any, other: Any) -> bool:
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return type(one) is type(other) and bool(one == other)
    alike = (one.shape, one.dtype, one.device, one.is_nested) == (other.shape, other.dtype, other.device, False)
    return one is other or (alike and torch.equal(one, other))


def _are_larger(results: Iterable[Tensor], tensors: Iterable[Tensor]) -> bool:
    """Does a function return more numbers than any of these tensors has?"""
    most = max(tensor.numel() for tensor in tensors)
    return any(one.is_floating_point() and one.numel() > most for one in results)


def _is_in(followed: dict[int, tuple[weakref.ref[Tensor], object]], tensor: Tensor) -> bool:
    entry = followed.get(id(tensor))
    return entry is not None and entry[0]() is tensor


def _put(followed: dict[int, tuple[weakref.ref[Tensor], object]], tensors: Iterable[Tensor], value: object) -> None:
    for tensor in tensors:
        key = id(tensor)
        followed[key] = weakref.ref(tensor, lambda _, key=key: followed.pop(key, None)), value  # type: ignore[misc]


def _second(name: str) -> str:
    if name in LEAVING:
        return (
            f"its weights leave torch, by {name}, and what becomes of these numbers cannot be followed, so that its "
            "heads might be cut in part"
        )
    return (
        f"its weights are multiplied a second time, by {name}, so that its heads hand over more than one product, and "
        "would be cut in part"
    )


def _joined(name: str) -> str:
    return (
        f"numbers made of its weights join what its heads hand over, by {name}, so that its heads would be cut in part"
    )
