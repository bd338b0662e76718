"""Which argument of a model the rows of a tensor come from, followed through the functions that compute it.

A model that is called with a text and an image, or with two texts, may have as many tokens in both; then lengths say
nothing. Every argument begins a row space; a function hands it on if row i of its result is computed from row i of its
input. Where tokens are joined, chosen or moved, a new row space begins, which is the same for queries and keys that are
treated alike. Attention returns the rows of its queries. Constants and parameters add nothing to rows of an argument.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from enum import Enum
from functools import reduce
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.heads.calls.call import Args, Kwargs
from regard.heads.calls.score_origin import learned, tensors_among

LOST = -1  # a source of what was computed by something that is not followed
MOST = 6  # row spaces that are kept of a tensor: residual streams collect one in every layer
# Arguments that describe the rows of another one.
_DESCRIBES = re.compile(r"mask|posit|type|label|past|cache|pos_|_pos|rotary|freqs|grid|sizes?$|lengths?$", re.I)

_CONSTANT = {f"{what}_like" for what in ("zeros", "ones", "empty", "full", "rand", "randn", "randint")} | {
    *("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "new_empty_strided"),
}
# Functions whose result has the rows of their first argument, whatever the others are. After a learned one it is not
# scores any more, unless heads are mixed.
_LEARNED = {
    *("linear", "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "embedding", "conv1d", "conv2d"),
    *("conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "embedding_bag"),
}
_FIRST = {
    *("masked_fill", "masked_fill_", "type_as", "view_as", "expand_as", "reshape_as", "scaled_dot_product_attention"),
    *("flex_attention", "multi_head_attention_forward", "softmax", "dropout", "to"),
}
_PRODUCT = {"matmul", "bmm", "mm", "baddbmm", "__matmul__", "__rmatmul__"}
_JOIN = {"cat", "concat", "concatenate", "stack", "hstack", "vstack"}
_SPLIT = {"split", "chunk", "tensor_split", "split_with_sizes", "narrow", "slice"}
_MOVE = {"roll", "flip", "pad", "flipud", "fliplr", "rot90"}
_CHOOSE = {"gather", "index_select", "take_along_dim", "take", "masked_select"}
_WRITE = {
    *("__setitem__", "index_put", "index_put_", "index_copy", "index_copy_", "scatter", "scatter_", "slice_scatter"),
    *("masked_scatter", "masked_scatter_", "index_add", "index_add_", "scatter_add", "scatter_add_"),
}


class Relation(Enum):
    """How the rows of two tensors belong together."""

    SAME = "row i of both is the same token"
    OTHER = "their tokens are those of different arguments"
    UNKNOWN = "neither is proven"


class Lineage(NamedTuple):
    """Where the rows of a tensor come from; of scores and weights also where their columns do."""

    rows: frozenset[int] = frozenset()  # row spaces: row i of the tensor is row i of each of them
    sources: frozenset[int] = frozenset()  # the first row spaces that they are made of: of arguments, or constants
    keys: Lineage | None = None
    length: int | None = None  # how many rows there are, where that is known

    def merged(self, other: Lineage) -> Lineage:
        """Row i is computed from row i of both."""
        keys = self.keys.merged(other.keys) if self.keys and other.keys else self.keys or other.keys
        rows = self.rows | other.rows
        rows = rows if len(rows) <= MOST else frozenset(sorted(rows)[:MOST])
        return Lineage(rows, self.sources | other.sources, keys, self.length or other.length)


Asked = tuple[Lineage, Lineage]  # of queries and of keys
_LOST = Lineage(sources=frozenset({LOST}))


class Lineages:
    """The lineage of every tensor of one forward, from the arguments of the outermost module on.

    module: the module that runs; its tensors that are no arguments are constants.
    """

    def __init__(self, arguments: Sequence[tuple[str, Tensor]], module: Callable[[], nn.Module]) -> None:
        self._module = module
        self._known: dict[int, tuple[weakref.ref[Tensor], Lineage]] = {}
        self._spaces: dict[Hashable, int] = {}  # by what they are derived from
        self._parts: dict[int, list[tuple[int, int, Lineage]]] = {}  # first row, rows and lineage of what was joined
        self.read_twice = False  # was an argument given under two names, as for an encoder and a decoder?
        self.roots: list[Tensor] = []
        self.real: dict[int, Tensor] = {}  # (B, T), False = padding, of row spaces where a self-attention showed it
        self.asked: Asked = (_LOST, _LOST)  # of the queries and keys of the attention that runs
        for name, tensor in arguments:
            if _is_text(name, tensor):
                if id(tensor) in self._known:
                    self.read_twice = True
                    continue
                self.roots.append(tensor)
                space = frozenset({self._space(("argument", len(self.roots)))})
                self._add(tensor, Lineage(space, space, None, tensor.shape[1] if tensor.dim() < 4 else None))
        for name, tensor in arguments:
            if not _is_text(name, tensor):
                self._add(tensor, self._constant(tensor))

    def relation(self, one: Lineage, other: Lineage) -> Relation:
        """Do two tensors have the same tokens?"""
        if one.rows & other.rows:
            return Relation.SAME
        mine, others = self._arguments(one), self._arguments(other)
        if not (mine or others) or LOST in mine | others or one.sources & other.sources:
            return Relation.UNKNOWN
        pairs = ((self.roots[a], self.roots[b]) for a in mine for b in others)
        # Two arguments of one shape may be a text, and the same with its positions added.
        are_twins = any(a.shape == b.shape and a.is_floating_point() and b.is_floating_point() for a, b in pairs)
        return Relation.UNKNOWN if are_twins else Relation.OTHER

    @property
    def adds_a_text(self) -> bool:
        """Are the keys of the attention that runs computed from an argument that its queries are not computed from?"""
        queries, keys = map(self._arguments, self.asked)
        return bool(keys - queries - {LOST})

    def _arguments(self, lineage: Lineage) -> frozenset[int]:
        """The sources that are arguments of the model, or unknown; none of a constant."""
        return frozenset(source for source in lineage.sources if source < len(self.roots))

    def of(self, tensor: Tensor) -> Lineage:
        """The lineage of a tensor: of a parameter or another tensor of the module that runs, that of a constant."""
        entry = self._known.get(id(tensor))
        if entry is not None and entry[0]() is tensor:
            return entry[1]
        if learned(tensor) or tensor.dim() == 0:
            return self._constant(tensor if tensor._base is None else tensor._base)
        module = self._module()
        held = (*module._buffers.values(), *module.__dict__.values())
        return self._constant(tensor) if any(value is tensor for value in held) else _LOST

    def ask(self, queries: Any, keys: Any) -> None:
        """An attention with these queries and keys is about to be reported."""
        self.asked = self.of(queries), self.of(keys)

    def hand_on(self, values: Any, out: Any, is_learned: bool) -> None:
        """A module returned this, whose rows are those of its first argument; is_learned: it has weights."""
        first = next(tensors_among(values), None)
        if first is not None:
            lineage = _without_keys(self.of(first), first, out) if is_learned else self.of(first)
            for tensor in tensors_among((out,)):
                self._add(tensor, lineage)

    def prepare(self, name: str, args: Args, kwargs: Kwargs) -> None:
        """A function is about to be called that may be attention, or the last step of one."""
        tensors = list(tensors_among((*args, *kwargs.values())))
        if name in _PRODUCT or name == "einsum":
            weights = [lineage for lineage in map(self.of, tensors) if lineage.keys is not None]
            self.asked = (weights[0], weights[0].keys or _LOST) if weights else (_LOST, _LOST)
        elif len(tensors) > 1:
            self.ask(kwargs.get("query", tensors[0]), kwargs.get("key", tensors[1]))

    def follow(self, name: str, args: Args, kwargs: Kwargs, out: Any) -> None:
        """A function was called: its results have the rows of its arguments, or new ones."""
        target = args[0] if name == "__setitem__" else out
        results = [target] if isinstance(target, Tensor) else list(tensors_among((target,), longest=99))
        if not results:
            return
        operands = [(t, self.of(t)) for t in tensors_among((*args, *kwargs.values()), longest=99)]
        for i, result in enumerate(results):
            if operands and (name in _SPLIT or (name == "__getitem__" and len(operands) == 1)):
                lineage = self._part(operands[0][1], _slice(name, args, results, i, operands[0][1].length))
            else:
                lineage = self._result(name, args, kwargs, operands, result)
            self._add(result, lineage)
            base = result._base if operands and result is operands[0][0] else None
            if base is not None and not learned(result):  # a part of another tensor was written
                self._add(base, self._written(self.of(base), lineage))

    def _result(
        self, name: str, args: Args, kwargs: Kwargs, operands: list[tuple[Tensor, Lineage]], out: Tensor
    ) -> Lineage:
        if name in _CONSTANT or not operands:
            return self._constant(out)
        first, others = operands[0][1], [lineage for _, lineage in operands[1:]]
        if name in _LEARNED:
            return _without_keys(first, operands[0][0], out)
        if name in _FIRST or (len(operands) == 1 and name not in _MOVE):
            return first
        if name in _PRODUCT or name == "einsum":
            (left, a), (right, b) = operands[-2:] if len(operands) > 1 else (operands[0], operands[0])
            return self._product(a, b, left.dim() > 2)
        if name in _JOIN:
            return self._joined(name, args, kwargs, operands, out)
        if name in _WRITE:
            is_whole = name == "__setitem__" and len(operands) == 2 and _sliced_rows(args[0], args[1], None) is None
            return self._merged([first, *others]) if is_whole else self._written(first, *others[-1:])
        if name in ("copy_", "set_") and others and operands[1][0].shape == out.shape:
            return others[0]
        if name in _CHOOSE or (name == "__getitem__" and others):
            if not self._arguments(first):
                return others[-1]  # a table, and what was looked up in it
            return self._derived((name, *(lineage.rows for lineage in others)), first, *others)
        if name in _MOVE:
            is_last = name == "pad" and operands[0][0].shape[:-1] == out.shape[:-1]
            return first if is_last else self._derived((name, str(args[1:]), str(kwargs)), first)
        return self._elementwise([(t, lineage) for t, lineage in operands if name != "where" or t is not args[0]], out)

    def _elementwise(self, operands: list[tuple[Tensor, Lineage]], out: Tensor) -> Lineage:
        """Row i of the result is computed from row i of the operands that are not broadcast along the rows."""
        lineages = [lineage for _, lineage in operands if lineage.keys is not None]  # scores, and a mask or a bias
        if not lineages:
            count = out.numel()
            of_arguments = [(t, lineage) for t, lineage in operands if self._arguments(lineage)]
            whole = [lineage for t, lineage in of_arguments if t.numel() == count]
            lineages = whole or [lineage for _, lineage in of_arguments or operands]
            if (
                not whole and len(lineages) == len(of_arguments) == 2 and out.dim() > 2
            ):  # every row of one with every row of the other
                return lineages[0]._replace(keys=lineages[1])
        return self._merged(lineages)

    def _product(self, left: Lineage, right: Lineage, is_batched: bool) -> Lineage:
        """A matrix product: of queries and keys, of weights and values, or with a learned matrix."""
        if left.keys is None and right.keys is None:
            if not self._arguments(right) and self._arguments(left):
                return left
            if not self._arguments(left) and not is_batched:
                return right
            return left._replace(keys=right)
        if left.keys is not None and right.keys is not None:
            return left
        weights, values = (left, right) if left.keys is not None else (right, left)
        queries, keys = weights._replace(keys=None), weights.keys or _LOST
        if not self._arguments(values) and not values.rows & (queries.rows | keys.rows):  # heads are mixed
            return weights
        if values.rows & keys.rows:
            return queries
        return keys if values.rows & queries.rows else queries if weights is left else values

    def _joined(
        self, name: str, args: Args, kwargs: Kwargs, operands: list[tuple[Tensor, Lineage]], out: Tensor
    ) -> Lineage:
        parts = [(t, lineage) for t, lineage in operands if t.numel()] or operands[:1]
        lineages = [lineage for _, lineage in parts]
        if len(parts) == 1:
            return lineages[0]
        axis = next((value for value in (*args[1:], kwargs.get("dim"), kwargs.get("axis")) if value is not None), 0)
        axis = (1 if name == "hstack" else axis) % out.dim()
        shares = all(one.rows == lineages[0].rows for one in lineages)
        length = lineages[0].length
        if axis == out.dim() - 1 or (shares and (name == "stack" or length not in (None, parts[0][0].shape[axis]))):
            return self._merged(lineages)
        joined = self._derived(("join", *(one.rows for one in lineages)), *lineages)
        if name == "stack":
            return joined
        sizes = [t.shape[axis] for t, _ in parts]
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        self._parts[min(joined.rows)] = list(zip(starts, sizes, lineages, strict=True))
        return joined._replace(length=out.shape[axis])

    def _part(self, lineage: Lineage, part: tuple[int, int, int] | None) -> Lineage:
        """Some of the rows: those of a tensor that was joined with others, or new ones."""
        if part is None:
            return lineage
        for space in lineage.rows:
            for *at, joined in self._parts.get(space, ()):
                if (*at, 1) == part:
                    return joined
        return self._derived(("part", part), lineage)._replace(length=part[1])

    def joined_real(self, text: Lineage, real: Tensor, sizes: tuple[int, int, int, int]) -> Tensor | None:
        """(B, T): which queries are real, where they are a text with this padding mask, joined with other tokens."""
        for space in self.asked[0].rows:
            for start, size, part in self._parts.get(space, ()):
                if self.relation(part, text) is Relation.SAME and real.shape == (sizes[0], size):
                    return F.pad(real, (start, sizes[2] - start - size), value=True)
        return None

    def _written(self, into: Lineage, *values: Lineage) -> Lineage:
        """Some of the rows are written over: those of another argument take the place of tokens, as an image's do."""
        if not any(map(self._arguments, values)):
            return into
        is_constant, sources = not self._arguments(into), frozenset[int]().union(*(one.sources for one in values))
        if not is_constant and not into.sources & sources:
            return into._replace(sources=into.sources | sources)
        return self._derived(("write", () if is_constant else into.rows, *(one.rows for one in values)), into, *values)

    def _merged(self, lineages: Sequence[Lineage]) -> Lineage:
        """Row i is computed from row i of all; to rows of an argument, constants add nothing."""
        return reduce(Lineage.merged, [one for one in lineages if self._arguments(one)] or lineages)

    def _derived(self, how: Hashable, *parents: Lineage) -> Lineage:
        """New rows, the same wherever they are made of the same ones in the same way."""
        space = self._space((how, parents[0].rows))
        sources = frozenset[int]().union(*(parent.sources for parent in parents))
        keys = next((parent.keys for parent in parents if parent.keys is not None), None)
        return Lineage(frozenset({space}), sources, keys)

    def _constant(self, tensor: Tensor) -> Lineage:
        key = ("parameter", id(tensor)) if isinstance(tensor, nn.Parameter) else object()
        space = frozenset({self._space(key)})
        return Lineage(space, space)

    def _space(self, key: Hashable) -> int:
        return self._spaces.setdefault(key, len(self._spaces))

    def _add(self, tensor: Tensor, lineage: Lineage) -> None:
        key, known = id(tensor), self._known
        known[key] = weakref.ref(tensor, lambda _: known.pop(key, None)), lineage


def _without_keys(lineage: Lineage, tensor: Tensor, out: Any) -> Lineage:
    """Of the result of a learned function: only a mixture of heads, (B, H, T, S), is scores as before."""
    is_mixture = isinstance(out, Tensor) and out.dim() > 3 and out.shape == tensor.shape
    return lineage if lineage.keys is None or is_mixture else lineage._replace(keys=None)


def _slice(name: str, args: Args, results: Sequence[Tensor], i: int, length: int | None) -> tuple[int, int, int] | None:
    """The first row, the number of rows and the step of the i-th result of slicing; None where it has all rows."""
    tensor, part = args[0], results[i]
    if name == "__getitem__":
        sliced = _sliced_rows(tensor, args[1], length)
        return None if sliced is None else (sliced.start, len(sliced), sliced.step)
    axes = [axis for axis in range(tensor.dim()) if tensor.shape[axis] != part.shape[axis]]
    if not axes or not _are_tokens(tensor, axes[0], length):
        return None
    before = sum(result.shape[axes[0]] for result in results[:i])
    return (args[2] if name == "narrow" and len(args) > 2 else before), part.shape[axes[0]], 1


def _sliced_rows(tensor: Tensor, key: Any, length: int | None) -> range | None:
    """The tokens that an index takes, if not all."""
    keys = key if isinstance(key, tuple) else (key,)
    taken = sum(one is not None and one is not Ellipsis for one in keys)
    axis = 0
    for one in keys:
        if one is Ellipsis:
            axis += tensor.dim() - taken
        elif one is not None:
            rows = range(*one.indices(tensor.shape[axis])) if isinstance(one, slice) else range(tensor.shape[axis])
            if rows != range(tensor.shape[axis]) and _are_tokens(tensor, axis, length):
                return rows
            axis += 1
    return None


def _are_tokens(tensor: Tensor, axis: int, length: int | None) -> bool:
    """May this axis be that of the tokens? The first one is of texts: two of them are not the same."""
    if tensor.dim() < 3:
        return tensor.shape[axis] == length
    if axis == tensor.dim() - 1:
        return False
    return axis == 0 or tensor.shape[axis] == length or (length is None and tensor.dim() == 3)


def tensors_given(names: Sequence[str], args: Args, kwargs: Kwargs) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a module is called with, by name, also those in a tuple, a list or a dict."""
    names = (*names, *("" for _ in args[len(names) :]))
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        values = (value,) if isinstance(value, Tensor) else ()
        if isinstance(value, Mapping):
            values = tuple(value.values())
        elif isinstance(value, (tuple, list)):
            values = tuple(value)
        yield from ((name, one) for one in values if isinstance(one, Tensor))


def lineages_of(
    names: Sequence[str], args: Args, kwargs: Kwargs, module: Callable[[], nn.Module], may_cross: bool
) -> Lineages | None:
    """Lineages for a forward in which lengths may be mistaken; None where it reads one text, which takes no time.

    names: of its positional arguments. may_cross: has the model a module that is named cross-attention?
    """
    arguments = list(tensors_given(names, args, kwargs))
    texts = {id(tensor) for name, tensor in arguments if _is_text(name, tensor)}
    return Lineages(arguments, module) if len(texts) > 1 or may_cross else None


def _is_text(name: str, tensor: Tensor) -> bool:
    """May these be the tokens of a text, or an image?"""
    may_be = not tensor.is_nested and tensor.dim() > 1 and tensor.dtype is not torch.bool
    return may_be and not _DESCRIBES.search(name)
