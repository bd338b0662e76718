"""Attention written out: a softmax over the last axis whose result is multiplied with something, by matrix product.

Only then is it attention; a softmax over a vocabulary or over experts is never reported. Between the two may stand
dropout, casts, views, head masks and the like. exp(log_softmax(…)), a softmax by hand (exp over sum) and products
written as sums of elementwise ones are not recognised.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from regard.masks import EVERYTHING, Mask, Padding
from regard.watch.call import Call
from regard.watch.chance import may_see

SOFTMAX = ("softmax", "special_softmax", "_softmax", "_safe_softmax")
PRODUCT = ("matmul", "bmm", "mm", "baddbmm", "__matmul__")
SLICE = ("__getitem__", "narrow", "slice")
MOVED = ("transpose", "permute", "swapaxes", "movedim")
SAME = (
    *("dropout", "dropout_", "dropout1d", "dropout2d", "feature_dropout", "alpha_dropout", "native_dropout"),
    *("to", "_to_copy", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone", "detach"),
    *("view", "view_as", "reshape", "reshape_as", "expand", "expand_as", "unsqueeze", "squeeze", "flatten"),
    *("unflatten", "repeat", "repeat_interleave", "mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__"),
    *("div", "div_", "__truediv__", "masked_fill", "masked_fill_", "where", "nan_to_num", "nan_to_num_"),
    *("__setitem__", "_unsafe_view", "index_fill", "index_fill_"),
)


class Written:
    """The weights of one softmax, until we know what becomes of them."""

    def __init__(self, weights: Tensor, seen: Tensor | None = None) -> None:
        self.weights = weights.detach()  # another object, so that the model's own may die
        self.seen = seen  # (…, 1, S): may any query see this key? Weights cannot tell: theirs may be 0 by rounding
        self.heads: tuple[int, int] | None = None  # (B, H), once the model has viewed it so
        self.safe = False

    def keep(self) -> None:
        """The model is about to write over it."""
        if not self.safe:
            self.weights, self.safe = self.weights.clone(), True


class Trail:
    """Follows what a model makes of each softmax; tells `found` of those that become attention."""

    def __init__(self, found: Callable[[Written], None]) -> None:
        self.found = found
        self.known: dict[int, tuple[Any, Written]] = {}  # by id; the references are weak

    def softmax(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scores = args[0] if args else kwargs.get("input")
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        if not isinstance(scores, Tensor) or scores.is_nested or scores.dim() < 2 or axis not in (-1, scores.dim() - 1):
            return function(*args, **kwargs)
        seen = may_see(scores.detach().amax(-2, keepdim=True)) if scores.numel() else None
        out = function(*args, **kwargs)
        if isinstance(out, Tensor) and out.is_floating_point():
            self._mark(out, Written(out, seen))
        return out

    def same(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        written = self._among(args, kwargs) if self.known else None
        if written is None:
            return function(*args, **kwargs)
        name = function.__name__.partition(".")[0]
        in_place = kwargs.get("inplace") or (name == "dropout" and len(args) > 3 and args[3] is True)
        if name.endswith("_") or in_place:
            written.keep()
        out = function(*args, **kwargs)
        first = out[0] if isinstance(out, tuple) else out
        if isinstance(first, Tensor) and first.dim() >= 2:
            self._mark(first, written)
        return out

    def moved(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        written = self._among(args, kwargs) if self.known else None
        out = function(*args, **kwargs)
        if written is not None:
            given = [i for o in (*args[1:], *kwargs.values()) for i in (o if isinstance(o, (tuple, list)) else (o,))]
            axes = [i % out.dim() for i in given]
            last = out.dim() - 1
            # Keys must stay last: the transposed weights times something are not attention.
            if axes[-1] == last if function.__name__.startswith("permute") else last not in axes:
                self._mark(out, written)
        return out

    def sliced(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        written = self._of(args[0]) if self.known and args else None
        out = function(*args, **kwargs)
        if written is not None and out.dim() >= 2:
            if args[0].shape == written.weights.shape:
                seen = written.seen
                if seen is not None:
                    seen = function(seen.expand_as(written.weights), *args[1:], **kwargs).any(-2, keepdim=True)
                written = Written(function(written.weights, *args[1:], **kwargs), seen)
            self._mark(out, written)
        return out

    def product(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = function(*args, **kwargs)
        if not self.known:
            return out
        given = [a for a in (*args, *(kwargs[n] for n in kwargs if n != "out")) if isinstance(a, Tensor)][-2:]
        written = self._of(given[0])
        # Learned values would make any softmax, such as one over a vocabulary, look like attention.
        if written is None or len(given) < 2 or given[1].dim() < 2 or isinstance(given[1], nn.Parameter):
            return out
        if given[0].shape[-1] == written.weights.shape[-1]:
            self._confirm(written)
        return out

    def einsum(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = function(*args, **kwargs)
        if not self.known or not isinstance(args[0], str):
            return out
        tensors = args[1] if isinstance(args[1], (tuple, list)) else args[1:]
        inputs, _, result = args[0].replace(" ", "").partition("->")
        names = inputs.split(",")
        for place, tensor in enumerate(tensors):
            written = self._of(tensor)
            others = "".join(names[:place] + names[place + 1 :])
            if written is not None and names[place][-1] in others and names[place][-1] not in result:
                self._confirm(written)
        return out

    def forget(self) -> None:
        self.known.clear()

    def _mark(self, tensor: Tensor, written: Written) -> None:
        key, known = id(tensor), self.known
        known[key] = (weakref.ref(tensor, lambda _: known.pop(key, None)), written)
        shape = written.weights.shape
        if tensor.dim() == 4 and len(shape) == 3 and tensor.shape[-2:] == shape[-2:]:
            written.heads = (tensor.shape[0], tensor.shape[1])

    def _of(self, tensor: Any) -> Written | None:
        entry = self.known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def _among(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Written | None:
        for value in (*args, *kwargs.values()):
            found = self._of(value) if isinstance(value, Tensor) else None
            if found is not None:
                return found
        return None

    def _confirm(self, written: Written) -> None:
        for key in [key for key, entry in self.known.items() if entry[1] is written]:
            del self.known[key]
        self.found(written)


def call_of(written: Written, batch: int | None) -> Call:
    """The Call of these weights, and of the keys that their scores hid from everyone."""
    mask: Mask = EVERYTHING
    if written.seen is not None:
        mask = Padding(_shaped(written.seen, written.heads, batch).any(1)[:, 0])
    return Call("", weights=_shaped(written.weights, written.heads, batch), mask=mask)


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
    "einsum": "einsum",
}
