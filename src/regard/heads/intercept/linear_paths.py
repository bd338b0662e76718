"""Which linear maps the heads of a call are between, and what becomes of their output: followed while values are kept.

Queries, keys and values are looked for among the outputs of the last linear maps, contexts among the inputs of the next
ones. From the output projection on, what a head writes is followed through additions, norms, scales and views, as long
as what comes out is a linear function of it; the scales of norms are taken as they were. If that goes into a linear map
whose output is the model's, it is the unembedding.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.heads.calls.call import Args, Kwargs, WatchedCall
from regard.heads.calls.score_origin import learned, tensors_among
from regard.heads.calls.wiring import (
    HeadMap,
    HeadWiring,
    LinearPath,
    Step,
    find_features,
    find_rotated,
    in_both_orders,
    version_of,
)
from regard.heads.intercept.tracked_softmax import factors_of

_RECENT = 6  # linear maps before a call among which its queries, keys and values may be
_WAITING = 3  # calls whose contexts may still go into a linear map
_CAST = {"to", "_to_copy", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone", "detach"}
_ADD = {"add", "add_", "__add__", "__radd__", "__iadd__"}
_SUB = {"sub", "sub_", "subtract", "__sub__", "__isub__"}
_SCALE = {"mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__"}
_DIVIDE = {"div", "div_", "divide", "__truediv__", "__itruediv__", "true_divide"}
_LINEAR = {
    *("view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze", "transpose", "permute", "t"),
    *("__getitem__", "narrow", "roll", "flip", "mean", "neg", "__neg__", "swapaxes", "movedim"),
}
_DROPOUT = {"dropout", "dropout_"}
_MAPS = {"linear", "addmm", "mm", "matmul", "__matmul__", "bmm", "baddbmm"}
_PRODUCTS = {"matmul", "__matmul__", "bmm", "baddbmm"}
_OURS_TO_BEAR = (RuntimeError, ValueError, TypeError, IndexError, KeyError)  # errors that no model must see
_OURS = object()  # in the arguments of a function: the tensor that is followed

Paths = dict[HeadWiring, LinearPath]


class _Map(NamedTuple):
    """A linear map as it was called: x · weightᵀ."""

    x: Tensor
    weight: Tensor  # (out, in)


class LinearPaths:
    """Follows linear maps while `is_on`; `where`: the name of the module that runs."""

    def __init__(self, where: Callable[[], str]) -> None:
        self.where = where
        self.is_on = False
        self.recent: deque[tuple[Tensor, Tensor]] = deque(maxlen=_RECENT)  # the output, and the weight
        self.products: deque[tuple[Tensor, Tensor]] = deque(maxlen=2)  # that may be scores: queries, keys transposed
        self.waiting: deque[HeadWiring] = deque(maxlen=_WAITING)
        self.unproven: list[tuple[HeadWiring, str]] = []  # whose heads and texts might be in another order; the module
        self.inputs: dict[HeadWiring, weakref.ref[Tensor]] = {}  # the contexts, as they go into a map
        self.paths: dict[int, tuple[weakref.ref[Tensor], int, Paths]] = {}  # by id: tensor, version, what is in it

    def forget(self) -> None:
        """The forward is over."""
        for wiring in self.waiting:
            wiring.context = None
        for followed in (self.recent, self.products, self.waiting, self.unproven, self.inputs, self.paths):
            followed.clear()

    def attend(self, call: WatchedCall, values: Tensor | None, context: Tensor, depth: int) -> HeadWiring:
        """An attention call ran: its projections, where they are among the last linear maps. depth: of its module."""
        wiring = HeadWiring(context.detach(), depth)
        with suppress(*_OURS_TO_BEAR):
            self._find_inputs(wiring, call, values)
        while self.waiting and self.waiting[0].found:
            self.waiting.popleft().context = None
        if len(self.waiting) == _WAITING:
            self.waiting[0].context = None
        self.waiting.append(wiring)
        self.recent.clear()
        self.products.clear()
        return wiring

    def _find_inputs(self, wiring: HeadWiring, call: WatchedCall, values: Tensor | None) -> None:
        """The projections of its queries, keys and values."""
        if values is not None and (found := self._origin(values.detach())) is not None:
            wiring.maps["values"] = found[0]
        for q, k in self._scored(call):
            queries, keys = (self._origin(one.detach(), may_rotate=True) for one in (q, k))
            if queries is None or keys is None:
                continue
            if (queries[0].rotated or keys[0].rotated) and not _is_rotation((q, k), (queries[1], keys[1])):
                why = "they are changed after it, and not by a rotation that leaves equal positions alone"
                wiring.unknown = dict.fromkeys(("queries", "keys"), why)
                continue
            wiring.maps |= {"queries": queries[0], "keys": keys[0]}
            break

    def prove(self, context: Tensor) -> None:
        """Contexts were cut whose texts and heads were in one axis: from now on, look for where they go."""
        self.is_on = True
        wiring = HeadWiring(context.detach())
        self.waiting.append(wiring)
        self.unproven.append((wiring, self.where()))

    def check_proven(self) -> None:
        """The forward is over: raise ValueError where such contexts went nowhere text by text and head by head."""
        for wiring, module in self.unproven:
            if not (wiring.found or wiring.is_handed_on):
                raise ValueError(
                    f"cannot cut the attention in {module or 'the model itself'}: its texts and heads are in one axis, "
                    "and its contexts were not seen to go, head by head, into a linear map or out of the module, so "
                    "that another text's head may have been cut"
                )

    def _scored(self, call: WatchedCall) -> Iterator[tuple[Tensor, Tensor]]:
        """Queries and keys, (B, H, T, D) and (B, Hkv, S, D), of the call; or those of the last products like that."""
        if isinstance(call.attention, QK):
            yield call.attention.q, call.attention.k
            return
        B, H, T, S = call.sizes
        for left, right in reversed(self.products):
            fits = left.shape[-2] == T and right.shape[-1] == S and left.shape[:-2].numel() == B * H
            if fits and H * right.shape[:-2].numel() % (B * H) == 0:
                q, k = left.reshape(B, H, T, -1), right.mT.reshape(B, -1, S, right.shape[-2])
                if k.shape[1] and H % k.shape[1] == 0:
                    yield q, k

    def _origin(self, heads: Tensor, may_rotate: bool = False) -> tuple[HeadMap, Tensor] | None:
        """The linear map that these heads, (B, H, n, D), came out of, and the heads as it made them."""
        B, _, S, D = heads.shape
        for find in (find_features, find_rotated) if may_rotate else (find_features,):
            for out, weight in reversed(self.recent):
                n = out[..., 0].numel() // max(B, 1)
                for features, _ in in_both_orders(out, B, n) if 0 < n <= S else ():
                    if (starts := find(heads[:, :, S - n :], features)) is not None:
                        made = torch.stack([features[..., i : i + D] for i in starts], 1)
                        is_rotated = find is find_rotated
                        return HeadMap(weight, starts, D, version_of(weight), is_rotated), made
        return None

    def follow(self, name: str, function: Any, args: Args, kwargs: Kwargs, out: Any) -> None:
        """A function ran. What goes wrong here is no fault of the model: then nothing is found."""
        if name not in _MAPS and not any(id(value) in self.paths for value in args):  # nearly all functions
            return
        with suppress(*_OURS_TO_BEAR), torch.no_grad():
            self._follow(name, function, args, kwargs, out)

    def _follow(self, name: str, function: Any, args: Args, kwargs: Kwargs, out: Any) -> None:
        if name == "__setitem__":
            self.paths.pop(id(args[0]), None)
        if not isinstance(out, Tensor) or not out.is_floating_point():
            return
        linear = _as_map(name, args, kwargs)
        paths = self._through(name, function, args, kwargs, out) if self.paths else {}
        if linear is None and name in _PRODUCTS:
            left, right = factors_of(args, kwargs)
            if left.dim() > 2 and right.dim() > 2:
                self.products.append((left.detach(), right.detach()))
        if linear is not None:
            weight = linear.weight.detach()
            self.recent.append((out.detach(), weight))
            paths = {w: LinearPath(p.run, weight) for w, p in self._of(linear.x).items() if p.unembedding is None}
            for wiring in self.waiting:
                self._output_of(wiring, linear.x, weight, out, paths)
        if not paths:  # inference tensors do not count how often they were written over
            self.paths.pop(id(out), None)
        else:
            key, known = id(out), self.paths
            known[key] = weakref.ref(out, lambda _: known.pop(key, None)), version_of(out), paths

    def _output_of(self, wiring: HeadWiring, x: Tensor, weight: Tensor, out: Tensor, paths: Paths) -> None:
        """Do the contexts of this call go into this map?"""
        if wiring.context is None or x.numel() != wiring.context.numel():
            return
        B, _, T, D = wiring.context.shape
        for features, tokens_first in in_both_orders(x.detach(), B, T):
            if (starts := find_features(wiring.context, features)) is not None:
                wiring.found.append((HeadMap(weight, starts, D, version_of(weight)), self.where()))
                paths[wiring] = LinearPath(_placing(tokens_first, tuple(out.shape)))
                self.inputs[wiring] = weakref.ref(x)
                return

    def _of(self, tensor: Any) -> Paths:
        entry = self.paths.get(id(tensor))
        if entry is None or entry[0]() is not tensor or not isinstance(tensor, Tensor):
            return {}
        if entry[1] != version_of(tensor):
            return {}
        return entry[2]

    def _through(self, name: str, function: Any, args: Args, kwargs: Kwargs, out: Tensor) -> Paths:
        """The paths that a function leads on."""
        if name in _CAST or (name in _DROPOUT and _is_off(args, kwargs)):
            return self._unchanged(args, out)
        tensors = tensors_among((*args, *kwargs.values()))
        found = [(tensor, paths) for tensor in tensors if (paths := self._before(tensor, out))]
        if not found:
            return {}
        tensor, paths = found[0]
        if name in _ADD or name in _SUB:
            return self._sum(args, kwargs, -1 if name in _SUB else 1, out)
        if len(found) > 1:
            return {}
        if out.shape == tensor.shape and name in _DROPOUT:
            return {w: p.then(_dropped) for w, p in paths.items()}
        step = _step(name, function, args, kwargs, tensor)
        return {} if step is None else {w: p.then(step) for w, p in paths.items() if _allowed(name, p, args)}

    def _unchanged(self, args: Args, out: Tensor) -> Paths:
        """Those of the first argument, which may be what is returned; type_as has another one."""
        return self._of(args[0]) if args and isinstance(args[0], Tensor) and args[0].shape == out.shape else {}

    def _before(self, tensor: Any, out: Tensor) -> Paths:
        """What was in the tensor before the function ran, which may have written over it."""
        entry = self.paths.get(id(tensor))
        if entry is None or entry[0]() is not tensor or not isinstance(tensor, Tensor):
            return {}
        return entry[2] if version_of(tensor) == entry[1] + (tensor is out) else {}

    def _sum(self, args: Args, kwargs: Kwargs, sign: int, out: Tensor) -> Paths:
        """The sum of two tensors, or their difference."""
        if len(args) != 2 or kwargs:
            return {}
        one, two = (self._before(value, out) for value in args)
        if sign < 0:
            two = {wiring: path.then(torch.neg) for wiring, path in two.items()}
        if any(path.unembedding is not None for path in (*one.values(), *two.values())):
            return {}
        if not (one and two) and (args[0] if one else args[1]).shape != out.shape:
            return {}
        one, two = self._without_inputs(one, args[1]), self._without_inputs(two, args[0])
        both = {wiring: path + two[wiring] for wiring, path in one.items() if wiring in two}
        return {**one, **two, **both}

    def _without_inputs(self, paths: Paths, other: Any) -> Paths:
        """Without maps whose own input is added to their output: that is a part of a larger map."""
        return {wiring: path for wiring, path in paths.items() if self.inputs[wiring]() is not other}

    def leave(self, output: Any, depth: int) -> None:
        """A module returned this; depth 1: the model itself. What is linear in a head's output was handed on.

        In what the model returns, what went through one more map are logits.
        """
        for value in _tensors_of(output) if self.unproven else ():
            for wiring, _ in self.unproven:
                wiring.is_handed_on |= wiring.context is not None and _holds(value, wiring.context)
        for value in _tensors_of(output) if self.paths else ():
            for wiring, path in self._of(value).items():
                if depth == 1 or (depth <= wiring.depth and path.unembedding is None):
                    wiring.is_handed_on = True
                if depth == 1 and path.unembedding is not None and wiring.path is None:  # of several, the first
                    wiring.path = path


def _holds(value: Any, context: Tensor) -> bool:
    """Is this the context, (B, H, T, D), or its heads side by side?"""
    if not isinstance(value, Tensor) or value.numel() != context.numel():
        return False
    if value.shape == context.shape and torch.equal(value, context):
        return True
    B, _, T, _ = context.shape
    return any(find_features(context, one) is not None for one, _ in in_both_orders(value.detach(), B, T))


def _tensors_of(output: Any) -> Iterator[Any]:
    """The tensors that a module returned, by itself, in a tuple or by name."""
    values = output.values() if isinstance(output, Mapping) else output
    return iter([values] if isinstance(values, Tensor) or not isinstance(values, Iterable) else values)


def _dropped(_: Tensor) -> Tensor:
    raise ValueError("dropout was on, so that what a head adds to a logit is not known; call model.eval()")


def _placing(tokens_first: bool, shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """(B, T, E) in the shape that the output projection has it."""
    return lambda t: (t.transpose(0, 1) if tokens_first else t).reshape(shape)


def _step(name: str, function: Any, args: Args, kwargs: Kwargs, tensor: Tensor) -> Step | None:
    """What a function does to a part of the tensor, where that is linear, with the scales as they are."""
    if name in _LINEAR or name in _SCALE or (name in _DIVIDE and args[0] is tensor):
        return _replay(function, args, kwargs, tensor)
    return _norm(name, args, kwargs) if name in ("layer_norm", "rms_norm") and args and args[0] is tensor else None


def _replay(function: Any, args: Args, kwargs: Kwargs, tensor: Tensor) -> Callable[[Tensor], Tensor]:
    """The function with another tensor in place of this one, which is not kept."""

    def mark(value: Any) -> Any:
        return _OURS if value is tensor else value.detach() if isinstance(value, Tensor) else value

    args, kwargs = tuple(map(mark, args)), {key: mark(value) for key, value in kwargs.items()}
    name = function.__name__
    function = getattr(Tensor, name[:-1]) if name.endswith("_") and not name.startswith("_") else function

    def run(new: Tensor) -> Tensor:
        there = (new.clone() if value is _OURS else value for value in args)
        result: Tensor = function(
            *there, **{key: new.clone() if value is _OURS else value for key, value in kwargs.items()}
        )
        return result

    return run


def _norm(name: str, args: Args, kwargs: Kwargs) -> Callable[[Tensor], Tensor] | None:
    """F.layer_norm or F.rms_norm over the last axis, with the scale that it has here."""
    names = ("input", "normalized_shape", "weight", "bias", "eps") if name == "layer_norm" else ()
    given = dict(zip(names or ("input", "normalized_shape", "weight", "eps"), args, strict=False)) | kwargs
    x, shape, weight, eps = given["input"].detach(), given["normalized_shape"], given.get("weight"), given.get("eps")
    if len(shape) != 1:
        return None
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    is_centred = name == "layer_norm"
    eps = eps if eps is not None else 1e-5 if is_centred else torch.finfo(x.dtype).eps
    spread = x.var(-1, correction=0, keepdim=True) if is_centred else x.square().mean(-1, keepdim=True)
    scale = (spread + eps).rsqrt()
    gain = None if weight is None else weight.detach()

    def run(t: Tensor) -> Tensor:
        t = (t - t.mean(-1, keepdim=True) if is_centred else t) * scale
        return t if gain is None else t * gain

    return run


def _is_off(args: Args, kwargs: Kwargs) -> bool:
    """Does this dropout drop nothing?"""
    given = dict(zip(("input", "p", "training"), args, strict=False)) | kwargs
    return given.get("training", True) is False or given.get("p", 0.5) == 0


def _allowed(name: str, path: LinearPath, args: Args) -> bool:
    """Logits may be scaled by a number; everything else makes something else of them."""
    by_number = any(isinstance(value, (int, float)) for value in args)
    return path.unembedding is None or (name in _SCALE | _DIVIDE and by_number)


def _as_map(name: str, args: Args, kwargs: Kwargs) -> _Map | None:
    """A call of linear, or a product with a 2-D parameter, as a linear map."""
    if name == "linear":
        given = dict(zip(("input", "weight"), args, strict=False)) | kwargs
        x, weight = given["input"], given["weight"]
    elif name == "addmm" and len(args) == 3 and not kwargs and learned(args[2]):
        x, weight = args[1], args[2].detach().T
    elif name in ("matmul", "__matmul__", "mm") and len(args) == 2 and args[1].dim() == 2 and learned(args[1]):
        x, weight = args[0], args[1].detach().T
    else:
        return None
    plain = isinstance(x, Tensor) and not x.is_nested and x.dim() > 1 and weight.dim() == 2
    return _Map(x, weight) if plain else None


def _is_rotation(after: tuple[Tensor, Tensor], before: tuple[Tensor, Tensor]) -> bool:
    """Rotated by position, and scaled, a query and a key at one position have the product that they had before."""
    products, lengths = [], []
    for q, k in (after, before):
        n = min(q.shape[2], k.shape[2])
        q, k = q[:, :, -n:].double(), k[:, :, -n:].double().repeat_interleave(q.shape[1] // k.shape[1], 1)
        products.append((q * k).sum(-1))
        lengths.append(q.norm(dim=-1) * k.norm(dim=-1))
    near = 1e-3 if after[0].element_size() > 2 else 5e-2
    away = products[0] / lengths[0].clamp(min=1e-30) - products[1] / lengths[1].clamp(min=1e-30)
    return bool((away.abs() <= near).all())
