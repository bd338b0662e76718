"""Attention written out: a softmax over the last axis whose result is multiplied with something, by matrix product.

Only then is it attention; a softmax over a vocabulary or over experts is never reported. Between the two may stand
casts, views, cuts, masks, divisions by the row's sum, a little more or less, dropout and the like. The weights are what
multiplies the values, but for dropout and casts. exp(log_softmax(…)), a softmax by hand (exp over sum) and products
written as sums of elementwise ones are not recognised.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.masks import EVERYTHING, Mask, Padding
from regard.heads.call import WatchedCall
from regard.heads.visibility import may_see

SOFTMAX = ("softmax", "special_softmax", "_softmax", "_safe_softmax")
PRODUCT = ("matmul", "bmm", "mm", "baddbmm", "__matmul__")
SLICE = ("__getitem__", "narrow", "slice", "split", "split_with_sizes", "tensor_split", "chunk", "unbind")
MOVED = ("transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "T", "mT", "adjoint", "mH")
DROPOUT = ("dropout", "dropout_", "dropout1d", "dropout2d", "feature_dropout", "alpha_dropout", "native_dropout")
SAME = (
    *("to", "_to_copy", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone", "detach"),
    *("view", "view_as", "reshape", "reshape_as", "expand", "expand_as", "unsqueeze", "squeeze", "flatten"),
    *("unflatten", "repeat", "repeat_interleave", "nan_to_num", "nan_to_num_", "_unsafe_view"),
)
DIVIDED = ("div", "div_", "divide", "divide_", "true_divide", "__truediv__", "__itruediv__")
ADDED = ("add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "subtract", "__sub__", "__isub__")
EITHER_SIDE = ("mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__", "where", *ADDED)
CHANGED = (
    *("masked_fill", "masked_fill_", "__setitem__", "index_fill", "index_fill_", "normalize", "tril", "tril_"),
    *("triu", "triu_", "clamp", "clamp_", "clip", "clip_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_"),
    *DIVIDED,
    *EITHER_SIDE,
)


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


@dataclass(eq=False)
class Written:
    """The weights that a tensor of the model holds, until we know what becomes of it."""

    weights: Tensor  # as the softmax had its axes; another object, so that the model's own may die
    seen: Tensor | None = None  # (…, 1, S): may any query see this key? Weights cannot tell: they may be 0 by rounding
    back: Callable[[Tensor], Tensor] = _as_it_is  # puts the axes of the model's tensor so
    turned: bool = False  # the model's tensor has queries last and keys before, to stand right of the values
    heads: tuple[int, int] | None = None  # (B, H), once the model has viewed it so
    dropped: bool = False  # the tensor has been through dropout, the weights have not
    lost: str = ""  # why the weights are not known
    softmax: object = field(default_factory=object)  # the one that they came from


class Trail:
    """Follows what a model makes of each softmax; tells `found` of those that become attention."""

    def __init__(self, found: Callable[[Written], None]) -> None:
        self.found = found
        self.known: dict[int, tuple[Any, Written, int]] = {}  # by id; the references are weak

    def softmax(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scores = args[0] if args else kwargs.get("input")
        axis = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis"))
        if not isinstance(scores, Tensor) or scores.is_nested or scores.dim() < 2 or axis not in (-1, scores.dim() - 1):
            return function(*args, **kwargs)
        seen = may_see(scores.detach().amax(-2, keepdim=True)) if scores.numel() else None
        out = function(*args, **kwargs)
        if isinstance(out, Tensor) and out.is_floating_point():
            self._mark(out, Written(out.detach(), seen))
        return out

    def same(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Other axes or another type, the same weights."""
        tensor = self._among(args, kwargs)
        out = function(*args, **kwargs)
        written = self._of(tensor)
        if tensor is None or written is None or not isinstance(out, Tensor) or out.dim() < 2:
            return out
        if not written.turned or out.shape[-2:] == tensor.shape[-2:]:
            self._mark(out, _viewed(written, tensor, out))
        return out

    def dropout(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The weights are those before it."""
        tensor = self._among(args, kwargs)
        written = self._of(tensor)
        given = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | kwargs
        active = given.get("p", 0.5) > 0 and given.get("training", given.get("train", True)) is not False
        if written is not None and active and not written.dropped:
            in_place = given.get("inplace") or function.__name__.endswith("_")
            written = replace(written, weights=written.weights.clone() if in_place else written.weights, dropped=True)
        out = function(*args, **kwargs)
        first = out[0] if isinstance(out, tuple) else out
        if written is not None:
            self._mark(first, written)
        return out

    def changed(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Other weights: those that come out, or the same done to those before dropout."""
        tensor, name = self._among(args, kwargs), function.__name__.partition(".")[0]
        written = self._of(tensor)
        if tensor is None or written is None or (args and args[0] is not tensor and name not in EITHER_SIDE):
            return function(*args, **kwargs)
        if name in ADDED and (others := [a for a in args if isinstance(a, Tensor) and a is not tensor and a.dim()]):
            out = function(*args, **kwargs)
            if any(self._of(other) for other in others):
                self._mark(out, replace(written, lost="its weights are the sum or difference of two softmaxes"))
            return out
        shape, undropped = tensor.shape, written.weights
        if written.dropped and not written.lost:
            by_sums = name in DIVIDED and any(isinstance(a, Tensor) for a in (*args[1:], *kwargs.values()))
            if by_sums or undropped.shape != shape or written.back is not _as_it_is:
                written = replace(written, lost=f"after dropout its weights go through {name}; put dropout last")
            else:
                written = replace(written, weights=_again(function, args, kwargs, tensor, undropped.clone()))
        out = function(*args, **kwargs)
        result = tensor if name == "__setitem__" else out
        if isinstance(result, Tensor) and result.shape[-2:] == shape[-2:]:
            self._mark(result, written if written.dropped else _now(written, result, shape))
        return out

    def moved(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        written = self._of(args[0]) if args else None
        out = function(*args, **kwargs)
        if written is not None:
            order, last = _order(function, args, kwargs), out.dim() - 1
            keys = order.index(last - written.turned)
            if keys >= last - 1:
                back, inverse = written.back, [order.index(axis) for axis in range(out.dim())]
                self._mark(out, replace(written, back=lambda t: back(t.permute(inverse)), turned=keys < last))
        return out

    def sliced(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        written = self._of(args[0]) if args else None
        out = function(*args, **kwargs)
        if written is None or written.turned:
            return out
        lost, parts, seen = written.lost, out, None
        if written.back is _as_it_is and args[0].shape == written.weights.shape:
            parts = function(written.weights, *args[1:], **kwargs)
            if written.seen is not None:
                seen = function(written.seen.expand_as(written.weights), *args[1:], **kwargs)
        elif written.dropped:
            lost = lost or "after dropout its weights are viewed and cut; put dropout last"
        several = not isinstance(out, Tensor)
        for i, tensor in enumerate(out if several else (out,)):
            if tensor.dim() >= 2:
                part, keys = (parts[i], seen and seen[i]) if several else (parts, seen)
                keys = None if keys is None else keys.any(-2, keepdim=True)
                self._mark(tensor, Written(part.detach(), keys, dropped=written.dropped, lost=lost))
        return out

    def product(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = function(*args, **kwargs)
        if not self.known:
            return out
        given = [a for a in (*args, *(kwargs[n] for n in kwargs if n != "out")) if isinstance(a, Tensor)][-2:]
        if len(given) < 2:
            return out
        # softmax · values, or the same turned round: valuesᵀ · softmaxᵀ
        for tensor, values, turned in ((given[0], given[1], False), (given[1], given[0], True)):
            written = self._of(tensor)
            # Learned values would make any softmax, such as one over a vocabulary, look like attention.
            if written is None or written.turned is not turned or values.dim() < 2 or isinstance(values, nn.Parameter):
                continue
            keys, queries = tensor.shape[-2:] if turned else tensor.shape[:-3:-1]
            if keys != written.weights.shape[-1] or _one_by_one(written.weights, queries, tensor.dim()):
                continue
            if written.weights.dim() == 2 and tensor.dim() == 3 and queries == 1:  # one query for each text
                written = replace(written, weights=written.weights[:, None], heads=(len(written.weights), 1))
            self._confirm(written)
            break
        return out

    def einsum(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = function(*args, **kwargs)
        if not self.known or not isinstance(args[0], str):
            return out
        tensors = args[1] if isinstance(args[1], (tuple, list)) else args[1:]
        inputs, arrow, result = args[0].replace(" ", "").partition("->")
        names = inputs.split(",")
        result = result if arrow else "".join(name for name in inputs if inputs.count(name) == 1)
        for place, tensor in enumerate(tensors):
            written = self._of(tensor)
            others = "".join(names[:place] + names[place + 1 :])
            if written is None:
                continue
            key = names[place][-2 if written.turned else -1]
            queries = any(name in result and name not in others for name in names[place])  # experts mix for each token
            if queries and key in others and key not in result:
                self._confirm(written)
        return out

    def forget(self) -> None:
        self.known.clear()

    def _mark(self, tensor: Tensor, written: Written) -> None:
        shape = written.weights.shape
        if tensor.dim() == 4 and len(shape) == 3 and tensor.shape[-2:] == shape[-2:]:
            written.heads = (tensor.shape[0], tensor.shape[1])
            for _, other, _ in self.known.values():
                if other.softmax is written.softmax:
                    other.heads = written.heads
        key, known = id(tensor), self.known
        known[key] = (weakref.ref(tensor, lambda _: known.pop(key, None)), written, _version(tensor))

    def _of(self, tensor: Any) -> Written | None:
        entry = self.known.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            return None
        written = entry[1]
        if entry[2] != _version(tensor):  # written over by something that we do not follow
            written = _now(written, tensor, tensor.shape)
            if written.dropped:
                written.lost = "after dropout its weights are written over; put dropout last"
            self._mark(tensor, written)
        return written

    def _among(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        if self.known:
            for value in (*args, *kwargs.values()):
                if isinstance(value, Tensor) and self._of(value) is not None:
                    return value
        return None

    def _confirm(self, written: Written) -> None:
        for key in [key for key, entry in self.known.items() if entry[1].softmax is written.softmax]:
            del self.known[key]
        self.found(written)


def _now(written: Written, tensor: Tensor, shape: torch.Size) -> Written:
    """The weights are what the tensor holds now; where it is not of that shape any more, its axes are as they are."""
    if tensor.shape == shape:
        return replace(written, weights=written.back(tensor.detach()))
    return replace(written, weights=tensor.detach(), back=_as_it_is)


def _viewed(written: Written, before: Tensor, after: Tensor) -> Written:
    if after.shape == before.shape:
        return written
    back, shape = written.back, before.shape
    return replace(written, back=(lambda t: back(t.reshape(shape))) if after.numel() == before.numel() else _as_it_is)


def _one_by_one(weights: Tensor, queries: int, axes: int) -> bool:
    """Has each row of the softmax values of its own? So a token mixes what its experts say; it attends to no other."""
    return queries == 1 < weights.shape[-2] and axes > weights.dim() > 2


@torch.no_grad()
def _again(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensor: Tensor, other: Tensor) -> Tensor:
    """What the function makes of another tensor in this one's place."""
    named = {name: other if value is tensor else value for name, value in kwargs.items()}
    out = function(*(other if value is tensor else value for value in args), **named)
    return out if isinstance(out, Tensor) else other


def _order(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """Which axis of what went in each axis of what comes out is."""
    probe = torch.empty(tuple(range(args[0].dim())), device="meta")
    return list(function(probe, *args[1:], **kwargs).shape)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def call_of(written: Written, batch: int | None) -> WatchedCall:
    """The WatchedCall of these weights, and of the keys that their scores hid from everyone."""
    mask: Mask = EVERYTHING
    seen, shape = written.seen, written.weights.shape
    if seen is not None and seen.shape == (*shape[:-2], 1, shape[-1]):
        mask = Padding(_shaped(seen, written.heads, batch).any(1)[:, 0])
    return WatchedCall("", weights=_shaped(written.weights, written.heads, batch), mask=mask)


def _shaped(t: Tensor, heads: tuple[int, int] | None, batch: int | None) -> Tensor:
    """(B, H, …): two axes are one head; three are B texts of one head, or B · H where the model says so."""
    if t.dim() == 2:
        return t[None, None]
    if t.dim() > 3:
        return t.flatten(0, -4)
    N = t.shape[0]
    B, H = heads or (batch, N // batch if batch else 0)
    fits = B is not None and B * H == N
    return t.unflatten(0, (B, H)) if fits else t[:, None]


ROLES = {
    **dict.fromkeys(SOFTMAX, "softmax"),
    **dict.fromkeys(PRODUCT, "product"),
    **dict.fromkeys(SLICE, "sliced"),
    **dict.fromkeys(MOVED, "moved"),
    **dict.fromkeys(SAME, "same"),
    **dict.fromkeys(DROPOUT, "dropout"),
    **dict.fromkeys(CHANGED, "changed"),
    "einsum": "einsum",
}
