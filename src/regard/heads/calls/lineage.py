"""How the tensors of a module were made from the outputs of its projections.

While a module runs whose attention is not known to be ordinary, each function that it calls is recorded as a step,
without its tensors. Where the axes of an attention call are in doubt, the steps are run again on labels: for each number
of a tensor, which token of which text it belongs to, and which feature of which projection it is. Views, slices and
concatenations move labels as they move numbers, so this is exact; functions that are not understood have no labels.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.heads.calls.score_origin import learned

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_MOST_STEPS = 4096  # that are remembered at once
_MOST_LABELS = 1 << 25  # of one tensor; a larger one is not labelled
_BASE = 1 << 40  # numbers of projections and of other beginnings, above those of features and of tokens

PERMUTE = ("transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "T", "mT", "adjoint", "mH")
SLICE = ("__getitem__", "narrow", "slice", "split", "split_with_sizes", "tensor_split", "chunk", "unbind")
_VIEWS = {
    *(*PERMUTE, *SLICE, "select", "view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "expand"),
    *("repeat", "repeat_interleave", "flip", "roll", "cat", "concat", "concatenate", "stack", "hstack", "vstack"),
    *("unfold", "_unsafe_view", "view_as_complex", "view_as_real", "tile", "broadcast_to"),
}
_REDUCTIONS = {"mean", "sum", "amax", "amin", "max", "min", "norm", "logsumexp"}
_CONVOLUTIONS = {"conv1d", "conv2d", "conv3d"}
_POOLS = {f"{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for n in (1, 2, 3)}
_LINEAR = {"linear", "addmm"}
_PRODUCTS = {"matmul", "bmm", "mm", "baddbmm", "__matmul__"}
_ENDS = {
    *("embedding", "scaled_dot_product_attention", "bilinear", "size", "shape", "cdist", "topk", "sort"),
    *("ones_like", "zeros_like", "full_like", "empty_like", "rand_like", "randn_like"),
    *("new_ones", "new_zeros", "new_full", "new_empty", "new_tensor"),
}
# Functions whose result has other numbers in other places, or whose labels would need more than their arguments.
_AS_LABELS: dict[str, Callable[..., Any]] = {
    "view": Tensor.reshape,
    "_unsafe_view": Tensor.reshape,
    "view_as_complex": lambda t: t[..., 0],
    "view_as_real": lambda t: torch.stack([t, t], -1),
}


class Unlabelled(Exception):
    """A tensor has no labels."""


class NumberLabels(NamedTuple):
    """Of each number of a tensor: the token of a text that it belongs to, and the feature that it is."""

    place: Tensor
    feature: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> NumberLabels:
        return NumberLabels(change(self.place), change(self.feature))


class Hole(NamedTuple):
    """An argument that was a tensor: which of the parents."""

    index: int


class LineageStep(NamedTuple):
    """One function call, without its tensors. A step without a function is a tensor that was not followed."""

    kind: str
    shape: tuple[int, ...]
    parents: tuple[LineageStep, ...] = ()
    function: Any = None
    args: Args = ()
    kwargs: Kwargs = {}  # noqa: RUF012 (never changed)
    is_scores: bool = False  # was a product of two tensors among the steps since the last projection?

    @classmethod
    def of_view(cls, function: Callable[[Tensor], Tensor], parent: LineageStep, shape: tuple[int, ...]) -> LineageStep:
        """A view of one tensor."""
        return cls("view", shape, (parent,), function, (Hole(0),), is_scores=parent.is_scores)

    @property
    def is_projected(self) -> bool:
        """Does it come from projections only? The axes of other tensors may be heads already, or anything else."""
        if self.kind in ("linear", "project", "conv"):
            return True
        parents = self.parents[:1] if self.kind == "product" else self.parents
        return bool(parents) and all(parent.is_projected for parent in parents)


class TensorLineage:
    """The steps by which the tensors that are alive were made."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}  # of projections and of tensors that were not followed, in this forward
        self._steps: dict[int, tuple[weakref.ref[Tensor], LineageStep]] = {}

    def clear(self) -> None:
        self._steps.clear()

    def number(self, identity: int) -> int:
        """A number for a projection; 0: a new one."""
        return self.numbers.setdefault(identity or -len(self.numbers) - 1, len(self.numbers)) * _BASE

    def of(self, tensor: Any) -> LineageStep | None:
        """The step that made this tensor; None where it was not followed."""
        entry = self._steps.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def record(self, name: str, function: Any, args: Args, kwargs: Kwargs, out: Any) -> None:
        """A function was called, and returned this."""
        if name == "__setitem__":
            self._add(args[0], LineageStep("unknown", tuple(args[0].shape)))
            return
        parts = out if isinstance(out, (tuple, list)) else (out,)
        if name in _ENDS or not parts or not isinstance(parts[0], Tensor) or parts[0].is_nested:
            return
        if not (parts[0].is_floating_point() or parts[0].is_complex()):
            return
        try:
            step = self._step(name, function, args, kwargs, parts[0])
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):  # called in a way that is not known
            return
        if step is None:
            return
        if parts is not out:
            self._add(out, step)
            return
        for i, part in enumerate(parts):
            if isinstance(part, Tensor):
                self._add(part, LineageStep("part", tuple(part.shape), (step,), args=(i,), is_scores=step.is_scores))

    def leaf(self, module: nn.Module, args: Args, out: Any) -> None:
        """A module that makes no attention was called: a projection, or one that keeps each number in its place."""
        if not (args and isinstance(args[0], Tensor) and isinstance(out, Tensor) and out.is_floating_point()):
            return
        x, weight = args[0], getattr(module, "weight", None)
        if isinstance(module, (nn.Conv1d, nn.Conv2d)):
            self._add(out, self._convolution(x, out, id(module), module.groups))
        elif isinstance(weight, Tensor) and weight.dim() == 2 and x.shape[:-1] == out.shape[:-1]:
            self._add(out, LineageStep("linear", tuple(out.shape), (self._or_new(x),), args=(self.number(id(module)),)))
        elif x.shape == out.shape and (step := self.of(x)) is not None:
            self._add(out, step)

    def _add(self, tensor: Tensor, step: LineageStep) -> None:
        if len(self._steps) > _MOST_STEPS:
            self._steps.clear()
        self._steps[id(tensor)] = weakref.ref(tensor), step

    def _or_new(self, tensor: Tensor) -> LineageStep:
        step = self.of(tensor)
        if step is None:
            step = LineageStep("", tuple(tensor.shape), args=(self.number(0),))
            self._add(tensor, step)
        return step

    def _step(self, name: str, function: Any, args: Args, kwargs: Kwargs, out: Tensor) -> LineageStep | None:
        shape, tensors = tuple(out.shape), _tensors_in(args, kwargs)
        if name in _VIEWS:
            return self._view(name, function, args, kwargs, shape, tensors)
        if name in _PRODUCTS or name == "einsum":
            return self._product(name, args, shape, tensors)
        if name in _LINEAR:
            x, weight = tensors[:2] if name == "linear" else tensors[1:3]
            return LineageStep("linear", shape, (self._or_new(x),), args=(self.number(id(weight)),))
        if name in _CONVOLUTIONS:
            groups = args[6] if len(args) > 6 else kwargs.get("groups", 1)
            return self._convolution(tensors[0], out, id(tensors[1]), groups)
        known = tuple(step for step in map(self.of, tensors) if step is not None)
        if not known:
            return None
        if name in _POOLS:
            return LineageStep("conv", shape, (known[0],), args=(0, known[0].shape[1]))
        if name in _REDUCTIONS:
            dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis"))
            reduced = dim, len(known[0].shape) == len(shape)
            return None if dim is None else LineageStep("reduce", shape, known[:1], args=reduced, is_scores=known[0].is_scores)
        fitting = sorted((step for step in known if step.shape == shape), key=lambda step: not step.is_scores)
        if fitting:  # the numbers change, each in its place
            return fitting[0]
        step = known[0]
        return LineageStep("same", shape, (step,), is_scores=step.is_scores) if _fits(step.shape, shape) else None

    def _view(
        self, name: str, function: Any, args: Args, kwargs: Kwargs, shape: tuple[int, ...], tensors: list[Tensor]
    ) -> LineageStep | None:
        parents: list[LineageStep] = []

        def hole(value: Any) -> Any:
            if isinstance(value, Tensor):
                parents.append(self._or_new(value))
                return Hole(len(parents) - 1)
            if isinstance(value, (tuple, list)) and any(isinstance(one, Tensor) for one in value):
                return [hole(one) for one in value]
            return value

        if not all(t.is_floating_point() or t.is_complex() for t in tensors):  # an index that is a tensor
            return None
        holes, named = tuple(map(hole, args)), {key: hole(value) for key, value in kwargs.items()}
        is_scores = any(step.is_scores for step in parents)
        return LineageStep("view", shape, tuple(parents), _AS_LABELS.get(name, function), holes, named, is_scores)

    def _product(self, name: str, args: Args, shape: tuple[int, ...], tensors: list[Tensor]) -> LineageStep | None:
        left, right = tensors[-2:] if len(tensors) > 1 else (None, None)
        if left is None or right is None:
            return None
        if name == "einsum":
            if len(tensors) != 2 or not isinstance(args[0], str):
                return None
            terms, result = _with_letters(*einsum_terms(args[0]), (left.dim(), right.dim()))
        else:
            terms, result = _terms_of_matrices(left.dim(), right.dim())
        for one, other, i in ((left, right, 0), (right, left, 1)):
            if learned(other):
                new = [axis for axis, letter in enumerate(result) if letter not in terms[i]]
                is_last = [letter for letter in terms[i] if letter not in result]
                if not new or not is_last:
                    return None
                return LineageStep("project", shape, (self._or_new(one),), args=(terms[i], result, tuple(new), self.number(id(other))))
        if all(left.shape[axis] == 1 for axis, letter in enumerate(terms[0]) if letter in terms[1] and letter not in result):
            return None  # an outer product, such as positions · frequencies
        return LineageStep("product", shape, (self._or_new(left), self._or_new(right)), args=(*terms, result), is_scores=True)

    def _convolution(self, x: Tensor, out: Tensor, weight: int, groups: int) -> LineageStep:
        is_depthwise = groups == x.shape[1] == out.shape[1]
        return LineageStep("conv", tuple(out.shape), (self._or_new(x),), args=(self.number(weight), out.shape[1] if is_depthwise else 0))


class Labeller:
    """Runs steps again on labels. Of a product there are two labels for each number: of its left and right factor."""

    def __init__(self) -> None:
        self._memo: dict[tuple[int, int], Any] = {}

    def labels(self, step: LineageStep, side: int = 0) -> NumberLabels:
        """The labels of a tensor; Unlabelled where it has none."""
        try:
            found = self._of(step, side)
        except (RuntimeError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise Unlabelled(str(error)) from error
        assert isinstance(found, NumberLabels)
        return found

    def _of(self, step: LineageStep, side: int) -> Any:
        key = id(step), side if step.is_scores else 0
        if key not in self._memo:
            if math.prod(step.shape) > _MOST_LABELS:
                raise Unlabelled("too large")
            method: Callable[[LineageStep, int], Any] = getattr(self, f"_{step.kind or 'new'}")
            self._memo[key] = method(step, side)
        return self._memo[key]

    def _new(self, step: LineageStep, _: int) -> NumberLabels:
        *lead, width = step.shape
        place = torch.arange(math.prod(lead)).view(*lead, 1).expand(step.shape) + step.args[0]
        return NumberLabels(place, torch.arange(width).expand(step.shape))

    def _unknown(self, step: LineageStep, _: int) -> NumberLabels:
        raise Unlabelled("written in parts")

    def _part(self, step: LineageStep, side: int) -> NumberLabels:
        base = step.parents[0]
        if base.kind == "reduce":
            return self._of(base, side)  # type: ignore[no-any-return]
        places, features = self._of(base, side)
        return NumberLabels(places[step.args[0]], features[step.args[0]])

    def _view(self, step: LineageStep, side: int) -> NumberLabels:
        parents = [self._of(parent, side) for parent in step.parents]

        def filled(value: Any, which: int) -> Any:
            if isinstance(value, Hole):
                return parents[value.index][which]
            return [filled(one, which) for one in value] if type(value) is list else value

        return NumberLabels(
            *(
                step.function(
                    *(filled(value, which) for value in step.args),
                    **{name: filled(value, which) for name, value in step.kwargs.items()},
                )
                for which in (0, 1)
            )
        )

    def _same(self, step: LineageStep, side: int) -> NumberLabels:
        return self._of(step.parents[0], side).map(lambda t: t.expand(step.shape))  # type: ignore[no-any-return]

    def _reduce(self, step: LineageStep, side: int) -> NumberLabels:
        dim, keep = step.args
        return self._of(step.parents[0], side).map(lambda t: t.amin(dim, keepdim=keep))  # type: ignore[no-any-return]

    def _linear(self, step: LineageStep, _: int) -> NumberLabels:
        width, number = step.shape[-1], step.args[0]
        place, feature = self._of(step.parents[0], 0)
        feature = _within(feature[..., :1], width, torch.arange(width)) + number
        return NumberLabels(place[..., :1].expand(step.shape), feature.expand(step.shape))

    def _project(self, step: LineageStep, _: int) -> NumberLabels:
        """A product with a learned matrix, whose axes are features."""
        term, result, new, weight = step.args
        place, feature = self._of(step.parents[0], 0).map(lambda t: _spread(t, term, result, step.shape))
        sizes = [step.shape[axis] for axis in new]
        own = torch.arange(math.prod(sizes)).view([s if axis in new else 1 for axis, s in enumerate(step.shape)])
        return NumberLabels(place, _within(feature, math.prod(sizes), own) + weight)

    def _conv(self, step: LineageStep, _: int) -> NumberLabels:
        """(N, C, …): features are in the second axis."""
        weight, kept = step.args
        parent, (_N, C, *space) = step.parents[0], step.shape
        labels = self._of(parent, 0)
        if not parent.kind:  # its last axis holds no features
            labels = NumberLabels(labels.place // parent.shape[-1], torch.zeros_like(labels.feature))
        where = (slice(None), slice(None), *(slice(0, 1) for _ in space))
        place, feature = labels.map(lambda t: t[where])
        pixels = torch.arange(math.prod(space)).view(1, 1, *space)
        place = _within(place[:, :1], math.prod(space), pixels) + place[:, :1] // _BASE * _BASE
        if not kept:
            feature = _within(feature[:, :1], C, torch.arange(C).view(1, C, *(1 for _ in space))) + weight
        return NumberLabels(place.expand(step.shape), feature.expand(step.shape))

    def _product(self, step: LineageStep, side: int) -> NumberLabels:
        """The labels of a factor; of those of a product, the side that changes along the axis that it adds."""
        parent, own, other, result = step.parents[side], step.args[side], step.args[1 - side], step.args[2]
        free = [axis for axis, letter in enumerate(own) if letter in result and letter not in other]
        labels: NumberLabels = self._of(parent, side)
        if parent.is_scores and not any(varies(t, axis) for t in labels for axis in free):
            labels = self._of(parent, 1 - side)
        return labels.map(lambda t: _spread(t, own, result, step.shape))


def varies(t: Tensor, axis: int) -> bool:
    """Do labels change along this axis?"""
    return t.shape[axis] > 1 and bool((t != t.narrow(axis, 0, 1)).any())


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    try:
        return torch.broadcast_shapes(shape, wanted) == wanted
    except RuntimeError:
        return False


def _within(labels: Tensor, size: int, number: Tensor) -> Tensor:
    """Labels of the parts of what has these labels, without its beginning."""
    return (labels % _BASE * size + number) % _BASE


def _spread(t: Tensor, term: Sequence[str], result: Sequence[str], shape: tuple[int, ...]) -> Tensor:
    """NumberLabels of a factor with the axes of the product: those that are summed over are left out, others are repeated."""
    for axis in reversed(range(len(term))):
        if term[axis] not in result:
            t = t.select(axis, 0)
    kept = [letter for letter in term if letter in result]
    t = t.permute([kept.index(letter) for letter in result if letter in kept])
    return t[tuple(slice(None) if letter in kept else None for letter in result)].expand(shape)


def _with_letters(
    terms: Sequence[str], result: str, dims: Sequence[int]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The same axes with names in place of an ellipsis."""
    longest = max((dim - len(term) + 3 for term, dim in zip(terms, dims, strict=True) if "." in term), default=0)
    lead = tuple(f"lead{axis}" for axis in range(longest - 1, -1, -1))

    def named(term: str, count: int) -> tuple[str, ...]:
        before, dots, after = term.partition("...")
        return (*before, *(lead[longest - count :] if dots else ()), *after)

    named_terms = [named(term, dim - len(term) + 3) for term, dim in zip(terms, dims, strict=True)]
    return named_terms, named(result, longest)


def _terms_of_matrices(left: int, right: int) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The axes of two matrices and of their product, named as in an einsum; leading axes are named from the right."""
    lead = [f"lead{axis}" for axis in range(max(left, right) - 3, -1, -1)]
    terms = [(*lead[len(lead) - left + 2 :], "t", "d"), (*lead[len(lead) - right + 2 :], "d", "s")]
    return terms, (*lead, "t", "s")


def einsum_terms(equation: str) -> tuple[list[str], str]:
    """The axes of each operand, and those of the result."""
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    return inputs.split(","), result if arrow else "".join(sorted(a for a in inputs if inputs.count(a) == 1 and a != ","))


def _tensors_in(args: Args, kwargs: Kwargs) -> list[Tensor]:
    """The tensors among the arguments of a function, also in its lists."""
    found: list[Tensor] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(one for one in value if isinstance(one, Tensor))
    return found
