"""Attention as a softmax, over whatever axis, followed by a matrix product with the values, which sums over that axis.

Only a softmax that reaches such a product is attention; one over a vocabulary or over experts is never reported.
Between the two there may be casts, views, slices, masks, divisions by the row's sum, small additions and dropout. The
weights are those that multiply the values, except for dropout and casts. Scores of tokens on tokens that are multiplied
without a softmax (sigmoid, exp over sum, …) are refused; products written as sums of elementwise products are not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.heads.calls.axis_roles import (
    are_weights,
)
from regard.heads.calls.call import Args, Kwargs
from regard.heads.calls.lineage import PERMUTE, SLICE, LineageStep, einsum_terms
from regard.heads.calls.score_origin import ScoreOrigins, learned
from regard.heads.calls.visibility import MasksOfScores
from regard.heads.calls.wiring import version_of
from regard.heads.intercept import functorch, tracked_softmax
from regard.heads.intercept.other_products import OtherProducts
from regard.heads.intercept.paths import HANDLERS, handles
from regard.heads.intercept.softmax_call import report_softmax
from regard.heads.intercept.tracked_softmax import SoftmaxSource, TrackedSoftmax, WeightedProduct, as_tuple, identity
from regard.support.hidden_scores import may_see_among

if TYPE_CHECKING:
    from regard.heads.intercept.interceptor import Interceptor

SOFTMAX = ("softmax", "special_softmax", "_softmax", "_safe_softmax", "softmin")
PRODUCT = ("matmul", "bmm", "mm", "baddbmm", "__matmul__")
DROPOUT = ("dropout", "dropout_", "dropout1d", "dropout2d", "feature_dropout", "alpha_dropout", "native_dropout")
RESHAPE_OR_CAST = (
    *("to", "_to_copy", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone", "detach"),
    *("view", "view_as", "reshape", "reshape_as", "expand", "expand_as", "unsqueeze", "squeeze", "flatten"),
    *("unflatten", "repeat", "repeat_interleave", "nan_to_num", "_unsafe_view"),
)
ADD = ("add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "subtract", "__sub__", "__isub__")
EITHER_OPERAND = ("mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__", "where", *ADD)
_SHARING = {"numpy", "__array__", "__dlpack__"}
_HIDDEN_AT = {"softmin": torch.inf}  # the score that hides a key
OF_WEIGHTS = "its weights are multiplied with other weights"
CHANGE = (
    *("masked_fill", "masked_fill_", "__setitem__", "index_fill", "index_fill_", "normalize", "tril", "tril_"),
    "nan_to_num_",  # nan_to_num makes another tensor of the same weights
    *("triu", "triu_", "clamp", "clamp_", "clip", "clip_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_"),
    *tracked_softmax.DIVIDE,
    *EITHER_OPERAND,
)


@dataclass
class LostSoftmax:
    """A softmax over scores, as long as it has not been multiplied with values."""

    module: str
    shape: tuple[int, ...]
    function: str = ""  # the first function after it that is not understood

    @property
    def reason(self) -> str:
        what = f"goes through {self.function}," if self.function else "is followed by something"
        return f"its softmax, {self.shape}, {what} which is not understood"


class SoftmaxTracker:
    """Follows every softmax of a model, and reports each one that is multiplied with values.

    keep_scores: keep the scores until then, to remove edges there. lost: softmaxes over scores that were multiplied
    with no values so far.
    """

    def __init__(self, interceptor: Interceptor) -> None:
        self.interceptor, self.lineage = interceptor, interceptor.lineage
        self.keep_scores = False
        self.scores = ScoreOrigins()
        self.masks = MasksOfScores()
        self.lost: dict[object, LostSoftmax] = {}  # by origin
        self.others = OtherProducts(interceptor)
        self.tracked: dict[int, tuple[Any, TrackedSoftmax, int]] = {}  # by id: weak reference, softmax, version

    def forget(self) -> None:
        """Stop following the softmaxes so far."""
        for followed in (self.tracked, self.scores.alive, self.lost):
            followed.clear()
        self.masks.forget()

    def pass_on(self, name: str, args: Args, kwargs: Kwargs) -> None:
        """A function without a handler is called: if its argument is a softmax, it is what was not understood."""
        _, softmax = self._tracked_argument(args, kwargs)
        if softmax is not None and (lost := self.lost.get(softmax.root or softmax.origin)) is not None:
            lost.function = lost.function or name

    def follow(self, method: Callable[..., Any], function: Any, args: Args, kwargs: Kwargs) -> Any:
        """A function is called that this method follows, if its argument is a softmax."""
        tensor, softmax = self._tracked_argument(args, kwargs)
        return function(*args, **kwargs) if softmax is None else method(self, tensor, softmax, function, args, kwargs)

    def softmax(self, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """Start to follow a softmax."""
        scores = args[0] if args else kwargs.get("input")
        axis = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis"))
        if not isinstance(scores, Tensor) or scores.is_nested or scores.dim() < 2 or not isinstance(axis, int):
            return function(*args, **kwargs)
        keys = axis - scores.dim() if axis >= 0 else axis
        by_keys: Callable[[Tensor], Tensor] = identity
        if keys != -1:
            by_keys = partial(torch.movedim, source=keys, destination=-1)
        signed = -scores.detach() if function.__name__ == "softmin" else scores.detach()
        visible = _visibility(by_keys(signed))
        out = function(*args, **kwargs)
        if isinstance(out, Tensor) and out.is_floating_point():
            softmax = TrackedSoftmax(by_keys(out.detach()), visible, restore=by_keys, keys=keys)
            if self.keep_scores and args and args[0] is scores and keys == -1:
                run = lambda t: function(t, *args[1:], **kwargs)  # noqa: E731
                softmax.source = SoftmaxSource(
                    scores, version_of(scores), run, hidden_at=_HIDDEN_AT.get(function.__name__, -torch.inf)
                )
            self._start(softmax, scores, out)
        return out

    def _start(self, softmax: TrackedSoftmax, scores: Tensor, out: Tensor) -> None:
        """Follow a softmax. It is lost if it is of scores, or computed for each head, and multiplied with no values."""
        shape, model = tuple(softmax.weights.shape), self.interceptor.running[0]
        softmax.queries, step = self.scores.of(scores), self.lineage.of(scores)
        softmax.step = None if step is None else LineageStep.of_view(softmax.restore, step, shape)
        by_heads = (model.heads or 0) > 1 and model.heads in shape[1:-1]
        if (softmax.queries is not None and out.dim() > 2) or by_heads:
            self.lost[softmax.origin] = LostSoftmax(model.calls[-1].name, tuple(out.shape))
        self._track(out, softmax)

    def reshape(self, tensor: Tensor, softmax: TrackedSoftmax, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """The same weights with another shape or dtype."""
        out = function(*args, **kwargs)
        is_matrix = isinstance(out, Tensor) and out.dim() >= 2
        if is_matrix and (softmax.keys == -1 or out.shape[softmax.keys :] == tensor.shape[softmax.keys :]):
            self._track(out, softmax.reshaped(tensor, out))
        return out

    def dropout(self, _: Tensor, softmax: TrackedSoftmax, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """The weights remain those before dropout."""
        options = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | kwargs
        if options.get("p", 0.5) > 0 and options.get("training", options.get("train", True)) is not False:
            softmax = softmax.dropped(in_place=bool(options.get("inplace")) or function.__name__.endswith("_"))
        out = function(*args, **kwargs)
        self._track(out[0] if isinstance(out, tuple) else out, softmax)
        return out

    def change(self, tensor: Tensor, softmax: TrackedSoftmax, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """New weights: the result, or after dropout the same change made to the weights before it."""
        name = tracked_softmax.base_name(function)
        if args and args[0] is not tensor and name not in EITHER_OPERAND:  # it is a divisor, for example
            return function(*args, **kwargs)
        if name in ADD and (others := [a for a in args if isinstance(a, Tensor) and a is not tensor and a.dim()]):
            return self._sum(softmax, others, function(*args, **kwargs))
        shape = tensor.shape
        if softmax.after_dropout and not softmax.unknown:
            softmax = softmax.changed_before_dropout(function, args, kwargs, tensor)
        softmax = softmax.hidden_by(function, args, kwargs, tensor)
        out = function(*args, **kwargs)
        result = tensor if name == "__setitem__" else out
        if isinstance(result, Tensor) and result.shape[-2:] == shape[-2:]:
            self._track(result, softmax if softmax.after_dropout else softmax.overwritten(result, shape))
        return out

    def permute(self, tensor: Tensor, softmax: TrackedSoftmax, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """The same weights with their axes in another order."""
        out = function(*args, **kwargs)
        probe = torch.empty(tuple(range(tensor.dim())), device="meta")  # each axis is as long as its number
        order = list(function(*(probe if a is tensor else a for a in args), **kwargs).shape)
        if args and args[0] is tensor:
            self._track(out, softmax.permuted(order))
        return out

    def slice(self, tensor: Tensor, softmax: TrackedSoftmax, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """Parts of the weights, each followed by itself."""
        out = function(*args, **kwargs)
        if args and args[0] is tensor and softmax.keys == -1:
            slices = as_tuple(out)
            self.lineage.record(tracked_softmax.base_name(function), function, args, kwargs, out)
            for part, tracked in zip(slices, softmax.sliced(function, args, kwargs, slices), strict=True):
                if part.dim() >= 2:
                    tracked.step = self.lineage.of(part)
                    self._track(part, tracked)
        return out

    def product(self, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """weights · values, or transposed: valuesᵀ · weightsᵀ."""
        out = function(*args, **kwargs)
        factors = tracked_softmax.factors_of(args, kwargs)
        if len(factors) < 2:
            return out
        left, right = factors
        for tensor, values, transposed in ((left, right, False), (right, left, True)) if self.tracked else ():
            softmax = self._attention(tensor, values, transposed)
            if softmax is not None:
                if are_weights(self.lineage.of(values), -2 if transposed else -1):
                    softmax = replace(softmax, unknown=OF_WEIGHTS)
                new = self._confirm(softmax, tracked_softmax.of_matrices(function, args, kwargs, tensor, out))
                return out.copy_(new) if "out" in kwargs and new is not out else new
        self.others.check((left, right), (-1, -2))
        self.scores.product(left, right, out)
        return out

    def einsum(self, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """A sum over the keys of the weights and another tensor."""
        out = function(*args, **kwargs)
        if not args or not isinstance(args[0], str):
            return out
        tensors = args[1] if isinstance(args[1], (tuple, list)) else args[1:]
        terms, result = einsum_terms(args[0])
        for i, tensor in enumerate(tensors if self.tracked else ()):
            softmax = self.softmax_of(tensor)
            values = [other for other in tensors if other is not tensor]
            if softmax is None or (len(values) == 1 and not _may_be_values(values[0], tensor)):
                continue
            others = "".join(terms[:i] + terms[i + 1 :])
            if _sums_over_keys(terms[i], others, result, softmax.keys):
                other = (terms[1 - i], tensors[1 - i]) if len(terms) == 2 else None
                product = tracked_softmax.of_einsum(
                    function, args, kwargs, tensor, terms[i], result, softmax.keys, out, other
                )
                return self._confirm(softmax, product)
        self._einsum_of_two(tensors, terms, result, out)
        return out

    def _einsum_of_two(self, tensors: Sequence[Tensor], terms: Sequence[str], result: str, out: Any) -> None:
        """Two matrices are multiplied: their product may be scores."""
        sums = [[i - len(term) for i, axis in enumerate(term) if axis not in result] for term in terms]
        self.others.check(tensors, [axes[0] for axes in sums if len(axes) == 1])
        if len(tensors) == 2 and min(tensor.dim() for tensor in tensors) > 1:
            left = tensors[0].mT if terms[0][-1] in result else tensors[0]
            right = tensors[1] if terms[1][-1] in result else tensors[1].mT
            self.scores.product(left, right, out)

    def _sum(self, softmax: TrackedSoftmax, others: list[Tensor], out: Tensor) -> Tensor:
        """Weights plus another tensor are no weights; the sum of two softmaxes is attention that we cannot report."""
        if two := [other for other in map(self.softmax_of, others) if other is not None]:
            for one in two:
                self.lost.pop(one.root or one.origin, None)
            self._track(out, replace(softmax, unknown="its weights are the sum or difference of two softmaxes"))
        return out

    def _attention(self, tensor: Tensor, values: Tensor, transposed: bool) -> TrackedSoftmax | None:
        """The softmax in the tensor, if this product makes it attention."""
        softmax = self.softmax_of(tensor)
        if softmax is None or softmax.transposed is not transposed or not _may_be_values(values, tensor):
            return None
        weights, (keys, queries) = softmax.weights, tensor.shape[-2:] if transposed else tensor.shape[:-3:-1]
        # A token that mixes its experts has values of its own for each row of the softmax; it attends to no other.
        is_mixture = queries == 1 < weights.shape[-2] and tensor.dim() > weights.dim() > 2
        if keys != weights.shape[-1] or is_mixture:
            return None
        if weights.dim() == 2 and tensor.dim() == 3 and queries == 1:  # one query per text
            softmax = replace(softmax, weights=weights[:, None], heads=(len(weights), 1), one_query=True)
            softmax.visible = None if softmax.visible is None else softmax.visible[:, None]
        return softmax

    def _confirm(self, softmax: TrackedSoftmax, product: WeightedProduct) -> Tensor:
        for key in [key for key, (_, other, _) in self.tracked.items() if other.origin is softmax.origin]:
            self.tracked.pop(key)
        self.lost.pop(softmax.root or softmax.origin, None)
        return report_softmax(self.interceptor, softmax, product)

    def _track(self, tensor: Tensor, softmax: TrackedSoftmax) -> None:
        shape = softmax.weights.shape
        if tensor.dim() == 4 and len(shape) == 3 and tensor.shape[-2:] == shape[-2:]:
            softmax.heads = (tensor.shape[0], tensor.shape[1])
            for _, other, _ in self.tracked.values():
                if other.origin is softmax.origin:
                    other.heads = softmax.heads
        key, tracked = id(tensor), self.tracked
        tracked[key] = (weakref.ref(tensor, lambda _: tracked.pop(key, None)), softmax, version_of(tensor))

    def softmax_of(self, tensor: Any) -> TrackedSoftmax | None:
        """The softmax that the tensor holds, with the weights that it holds now."""
        entry = self.tracked.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            return None
        _, softmax, version = entry
        return softmax if version == version_of(tensor) else self._rewritten(tensor, softmax)

    def _rewritten(self, tensor: Tensor, softmax: TrackedSoftmax) -> TrackedSoftmax:
        """The tensor was changed in place by a function that is not followed."""
        softmax = replace(softmax.overwritten(tensor, tensor.shape), hidden_by_zero=True)
        if softmax.after_dropout:
            softmax.unknown = "after dropout its weights are written over; put dropout last"
        self._track(tensor, softmax)
        return softmax

    def written(self, name: str, args: Args, kwargs: Kwargs) -> None:
        """A function ran that may write into memory of weights, of which versions say nothing.

        Views by `.data` and tensors of inference mode count no versions; arrays of NumPy share memory, too.
        """
        target = kwargs.get("out", args[0] if args else None)
        if not isinstance(target, Tensor) or not ("out" in kwargs or name in _SHARING or _writes(name)):
            return
        is_handled = name in HANDLERS
        for tensor, softmax in [(ref(), softmax) for ref, softmax, _ in self.tracked.values()]:
            if tensor is not None and not (tensor is target and is_handled) and _share_memory(tensor, target):
                self._rewritten(tensor, softmax)

    def _tracked_argument(self, args: Args, kwargs: Kwargs) -> tuple[Tensor, TrackedSoftmax] | tuple[None, None]:
        if self.tracked:
            for value in (*args, *kwargs.values()):
                if isinstance(value, Tensor) and (softmax := self.softmax_of(value)) is not None:
                    return value, softmax
        return None, None


def _visibility(scores: Tensor) -> Tensor | None:
    """(…, T, S): which keys each query may see, by its scores; None where it may see all of them."""
    if functorch.is_vmapped():
        return None
    with functorch.off():
        seen = may_see_among(functorch.plain(scores.detach()))
        return None if bool(seen.all()) else seen


def _writes(name: str) -> bool:
    """Does a function of this name change its first argument?"""
    return name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))


def _share_memory(one: Tensor, other: Tensor) -> bool:
    if one.device != other.device or other.is_nested or one.layout is not torch.strided is not other.layout:
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _may_be_values(values: Tensor, weights: Tensor) -> bool:
    """Learned values, and those that all texts share, would make any softmax, as over a vocabulary, attention."""
    return values.dim() >= 2 and not learned(values) and (values.dim() > 2 or weights.dim() == 2)


def _sums_over_keys(term: str, others: str, result: str, keys: int) -> bool:
    """Does the einsum keep queries of the weights' own and sum over their keys? A mixture of experts has no queries."""
    key = term[keys:][:1]
    has_queries = any(axis in result and axis not in others for axis in term)
    return has_queries and key in others and key not in result


def _register(names: tuple[str, ...], method: Callable[..., Any], is_attention: bool = False) -> None:
    def handler(interceptor: Interceptor, *call: Any) -> Any:
        tracker = interceptor.softmaxes
        return method(tracker, *call) if is_attention else tracker.follow(method, *call)

    handles(*names, is_attention=is_attention)(handler)


_register(SOFTMAX, SoftmaxTracker.softmax, is_attention=True)
_register(PRODUCT, SoftmaxTracker.product, is_attention=True)
_register(("einsum",), SoftmaxTracker.einsum, is_attention=True)
_register(SLICE, SoftmaxTracker.slice)
_register(PERMUTE, SoftmaxTracker.permute)
_register(RESHAPE_OR_CAST, SoftmaxTracker.reshape)
_register(DROPOUT, SoftmaxTracker.dropout)
_register(CHANGE, SoftmaxTracker.change)
