"""How the tensors of a module were made from the outputs of its projections.

While a module runs whose attention is not known to be ordinary, each function that it calls is recorded as a step,
without its tensors. Where the axes of an attention call are in doubt, the steps are run again on labels of the numbers
(number_labels.py). Views, slices and concatenations move labels as they move numbers, so this is exact; what functions
return that are not understood has no labels.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.heads.calls.score_origin import learned

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_MOST_STEPS = 4096  # that are remembered before those of tensors that died are dropped
BASE = 1 << 40  # numbers of projections and of other beginnings, above those of features and of tokens

PERMUTE = ("transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "T", "mT", "adjoint", "mH")
SLICE = ("__getitem__", "narrow", "slice", "split", "split_with_sizes", "tensor_split", "chunk", "unbind")
VIEWS = {
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


class Hole(NamedTuple):
    """An argument that was a tensor: which of the parents."""

    number: int


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
        """Does it come from projections only? The axes of other tensors may be anything."""
        return self._comes_from(0)

    @property
    def has_features_last(self) -> bool:
        """Does it come from projections, or from tensors (B, T, E)? Those of more axes may have heads already."""
        return self._comes_from(3)

    def _comes_from(self, axes: int) -> bool:
        if self.kind in ("linear", "project", "conv"):
            return True
        if not self.kind:
            return len(self.shape) <= axes
        parents = self.parents[:1] if self.kind == "product" else self.parents
        return bool(parents) and all(parent._comes_from(axes) for parent in parents)


class TensorLineage:
    """The steps by which the tensors that are alive were made."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}  # of projections and of tensors that were not followed, in this forward
        self._steps: dict[int, tuple[weakref.ref[Tensor], LineageStep]] = {}
        self._limit = _MOST_STEPS

    def clear(self) -> None:
        self._steps.clear()
        self.numbers.clear()

    def number(self, identity: int) -> int:
        """A number for a projection; 0: a new one."""
        return self.numbers.setdefault(identity or -len(self.numbers) - 1, len(self.numbers)) * BASE

    def of(self, tensor: Any) -> LineageStep | None:
        """The step that made this tensor; None where it was not followed."""
        entry = self._steps.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def record(self, name: str, function: Any, args: Args, kwargs: Kwargs, out: Any) -> None:
        """A function was called, and returned this."""
        if name == "__setitem__":  # of a tensor with steps, other numbers in the same places
            if self.of(args[0]) is None:
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
        if len(self._steps) > self._limit:
            self._steps = {key: entry for key, entry in self._steps.items() if entry[0]() is not None}
            self._limit = max(_MOST_STEPS, 2 * len(self._steps))
        self._steps[id(tensor)] = weakref.ref(tensor), step

    def _or_new(self, tensor: Tensor) -> LineageStep:
        step = self.of(tensor)
        if step is None:
            step = LineageStep("", tuple(tensor.shape), args=(self.number(0),))
            self._add(tensor, step)
        return step

    def _step(self, name: str, function: Any, args: Args, kwargs: Kwargs, out: Tensor) -> LineageStep | None:
        shape, tensors = tuple(out.shape), _tensors_in(args, kwargs)
        if name in VIEWS:
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
            return _reduction(known[0], args, kwargs, shape)
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
                return LineageStep(
                    "project", shape, (self._or_new(one),), args=(terms[i], result, tuple(new), self.number(id(other)))
                )
        if all(
            left.shape[axis] == 1 for axis, letter in enumerate(terms[0]) if letter in terms[1] and letter not in result
        ):
            return None  # an outer product, such as positions · frequencies
        return LineageStep(
            "product", shape, (self._or_new(left), self._or_new(right)), args=(*terms, result), is_scores=True
        )

    def _convolution(self, x: Tensor, out: Tensor, weight: int, groups: int) -> LineageStep:
        is_depthwise = groups == x.shape[1] == out.shape[1]
        return LineageStep(
            "conv",
            tuple(out.shape),
            (self._or_new(x),),
            args=(self.number(weight), out.shape[1] if is_depthwise else 0),
        )


def _reduction(step: LineageStep, args: Args, kwargs: Kwargs, shape: tuple[int, ...]) -> LineageStep | None:
    """A mean, a maximum or the like over some axes: it has the labels of one of its numbers."""
    dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis"))
    if dim is None:
        return None
    keeps = len(step.shape) == len(shape)
    return LineageStep("reduce", shape, (step,), args=(dim, keeps), is_scores=step.is_scores)


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    try:
        return bool(torch.broadcast_shapes(shape, wanted) == wanted)
    except RuntimeError:
        return False


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
    return inputs.split(","), result if arrow else "".join(
        sorted(a for a in inputs if inputs.count(a) == 1 and a != ",")
    )


def _tensors_in(args: Args, kwargs: Kwargs) -> list[Tensor]:
    """The tensors among the arguments of a function, also in its lists."""
    found: list[Tensor] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(one for one in value if isinstance(one, Tensor))
    return found
