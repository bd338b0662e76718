"""Which argument of a model the rows of a tensor come from, followed through the functions that compute it.

A model that is called with a text and an image, or with two texts, may have as many tokens in both; then lengths say
nothing. Every argument begins a row space; a function hands it on if row i of its result is computed from row i of its
input. Where tokens are joined, chosen or moved, a new row space begins, which is the same for queries and keys that are
treated alike. Attention returns the rows of its queries. Constants and parameters add nothing to rows of an argument.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from regard.heads.calls.call import Args, Kwargs
from regard.heads.calls.score_origin import learned, tensors_among
from regard.heads.inputs import row_functions as names
from regard.heads.inputs.row_choices import RowChoices
from regard.heads.inputs.row_functions import (
    Rows,
    index_given,
    is_slice,
    joined_axis,
    may_be_text,
    may_mix_rows,
    picks_row,
    rows_indexed,
    rows_taken,
    takes_features,
)
from regard.heads.inputs.row_places import RowPlaces
from regard.heads.inputs.row_relation import LOST, Relation, RowOrigin


class _Call(NamedTuple):
    """A function that was called: its tensors, each with its origin, and one of its results."""

    name: str
    args: Args
    kwargs: Kwargs
    operands: list[tuple[Tensor, RowOrigin]]
    out: Tensor

    @property
    def tensor(self) -> Tensor:
        return self.operands[0][0]

    @property
    def first(self) -> RowOrigin:
        return self.operands[0][1]

    @property
    def others(self) -> list[RowOrigin]:
        return [origin for _, origin in self.operands[1:]]


Asked = tuple[RowOrigin, RowOrigin]  # of queries and of keys
_LOST = RowOrigin(sources=frozenset({LOST}))


class RowOrigins:
    """The origin of every tensor of one forward, from the arguments of the outermost module on.

    calls: the module calls in progress, innermost last. The tensors that a module has as attributes are constants.
    is_needed: did an attention call need them, as something else than its own text might be meant?
    """

    def __init__(self, arguments: Sequence[tuple[str, Tensor]], calls: Callable[[], Sequence[Any]]) -> None:
        self._calls = calls
        self._known: dict[int, tuple[weakref.ref[Tensor], RowOrigin]] = {}
        self._spaces: dict[Hashable, int] = {}  # by what they are derived from
        self._parts: dict[int, list[tuple[int, int, RowOrigin]]] = {}  # first row, rows and origin of what was joined
        self._choices = RowChoices(self._derived)
        self._places = RowPlaces()
        self.reads_one_text_twice = False  # was an argument given under two names, as for an encoder and a decoder?
        self.roots: list[Tensor] = []
        self._real: dict[int, Tensor] = {}  # (B, T), False = padding, of row spaces where a self-attention showed it
        self.asked: Asked = (_LOST, _LOST)  # of the queries and keys of the attention that runs
        for name, tensor in arguments:
            if may_be_text(name, tensor):
                if id(tensor) in self._known:
                    self.reads_one_text_twice = True
                    continue
                self.roots.append(tensor)
                space = frozenset({self._space(("argument", len(self.roots)))})
                self._add(tensor, RowOrigin(space, space, None, tensor.shape[1] if tensor.dim() < 4 else None))
        self.is_needed = len(self.roots) != 1
        self.moves: set[str] = set()  # the functions that may have moved rows
        for name, tensor in arguments:
            if not may_be_text(name, tensor):
                self._add(tensor, self._constant(tensor))

    def relation(self, one: RowOrigin, other: RowOrigin) -> Relation:
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

    def are_same(self, one: Tensor, other: Tensor) -> bool:
        """Do two tensors have the same tokens, for certain?"""
        return self.relation(self.of(one), self.of(other)) is Relation.SAME

    @property
    def adds_a_text(self) -> bool:
        """Are the keys of the attention that runs computed from an argument that its queries are not computed from?"""
        queries, keys = map(self._arguments, self.asked)
        return bool(keys - queries - {LOST})

    def _arguments(self, origin: RowOrigin) -> frozenset[int]:
        """The sources that are arguments of the model, or unknown; none of a constant."""
        return frozenset(source for source in origin.sources if source < len(self.roots))

    def of(self, tensor: Tensor) -> RowOrigin:
        """The origin of a tensor: of a parameter or another tensor of the module that runs, that of a constant."""
        entry = self._known.get(id(tensor))
        if entry is not None and entry[0]() is tensor:
            return entry[1]
        if learned(tensor) or tensor.dim() == 0:
            return self._constant(tensor if tensor._base is None else tensor._base)
        if tensor.is_nested:  # torch.nn.TransformerEncoder packs its input in operators that are not followed
            given = (t for call in reversed(self._calls()) for t in tensors_among(call.arguments) if not t.is_nested)
            return next(map(self.of, given), _LOST)
        module = self._calls()[-1].module
        held = (*module._buffers.values(), *module.__dict__.values())
        return self._constant(tensor) if any(value is tensor for value in held) else _LOST

    def ask(self, queries: Any, keys: Any, name: str = "") -> None:
        """An attention with these queries and keys is about to be reported."""
        self.asked = self._placed(self.of(queries), self.of(keys), name, (), queries, keys)

    def hand_on(self, values: Any, out: Any, is_learned: bool) -> None:
        """A module returned this, whose rows are those of its first argument; is_learned: it has weights."""
        first = next(tensors_among(values), None)
        if first is not None:
            origin = self._learned(self.of(first), first, out) if is_learned else self.of(first)
            self._places.hand_on(first, out) if is_learned else self._places.follow("", None, (first,), {}, out)
            for tensor in tensors_among((out,)):
                self._add(tensor, origin)

    def prepare(self, name: str, args: Args, kwargs: Kwargs) -> None:
        """A function is about to be called that may be attention, or the last step of one."""
        tensors = list(tensors_among((*args, *kwargs.values())))
        if name in names.PRODUCT:
            left, right = map(self.of, tensors[-2:] if len(tensors) > 1 else (tensors[0], tensors[0]))
            self.asked = _queries_and_keys(*((left, right) if left.keys is not None else (right, left)))
        elif len(tensors) > 1:
            self.ask(kwargs.get("query", tensors[0]), kwargs.get("key", tensors[1]), name)

    def follow(self, name: str, function: Any, args: Args, kwargs: Kwargs, out: Any) -> None:
        """A function was called: its results have the rows of its arguments, or new ones."""
        if name in names.MAY_MOVE and names.may_move(name, args):
            self.moves.add(name)
        with suppress(RuntimeError, TypeError, ValueError, IndexError, AttributeError):  # otherwise they are unknown
            self._follow(name, args, kwargs, out)
        with suppress(RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            self._places.follow(name, function, args, kwargs, out)

    def _follow(self, name: str, args: Args, kwargs: Kwargs, out: Any) -> None:
        target = args[0] if name == "__setitem__" else out
        results = [target] if isinstance(target, Tensor) else list(tensors_among((target,), longest=99))
        if not results:
            return
        operands = [(t, self.of(t)) for t in tensors_among((*args, *kwargs.values()), longest=99)]
        is_sliced = operands and (name in names.SPLIT or (name == "__getitem__" and is_slice(args[1])))
        for i, result in enumerate(results):
            if is_sliced:
                origin = self._part(operands[0][1], rows_taken(name, args, results, i, operands[0][1].length))
            else:
                rule = _RULES.get(name, RowOrigins._elementwise) if operands else RowOrigins._new
                origin = rule(self, _Call(name, args, kwargs, operands, result))
            self._add(result, origin)
            base = result._base if operands and result is operands[0][0] else None
            if base is not None and not learned(result):  # a part of another tensor was written
                is_whole = result.shape[:-1] == base.shape[:-1]  # it has some of the features of all rows
                into = self.of(base)
                self._add(base, self._merged([into, origin]) if is_whole else self._written(into, origin))

    def _product_of(self, call: _Call) -> RowOrigin:
        factors = call.operands[-2:] if call.others else call.operands * 2
        origin, (left, right) = self._product(factors), (tensor for tensor, _ in factors)
        if origin.keys is None or any(one.keys is not None for _, one in factors):
            return origin
        queries, keys = self._placed(origin, origin.keys, call.name, call.args, left, right)
        return queries._replace(keys=keys)

    def _placed(self, queries: RowOrigin, keys: RowOrigin, name: str, args: Args, left: Any, right: Any) -> Asked:
        """Rows of queries and keys: others where views reordered the keys, or put texts in the place of tokens."""
        with suppress(RuntimeError, TypeError, ValueError, IndexError):
            if self._places.are_moved(name, args, left, right):
                keys = self._derived("moved", keys)
            if self._places.are_across(name, args, left, right):
                queries, keys = self._derived("across", queries), self._derived("across", keys)
        return queries, keys

    def _first(self, call: _Call) -> RowOrigin:
        return call.first

    def _learned_of(self, call: _Call) -> RowOrigin:
        return self._learned(call.first, call.tensor, call.out)

    def _moved(self, call: _Call) -> RowOrigin:
        if call.name in ("sort", "topk") and not {1, -2, 0} & {*call.args[1:], call.kwargs.get("dim")}:
            return call.first  # of features
        if call.name == "pad" and not any(call.args[1][2:] if len(call.args) > 1 else call.kwargs["pad"][2:]):
            return call.first
        return self._derived((call.name, str(call.args[1:]), str(call.kwargs)), call.first)

    def _chosen(self, call: _Call) -> RowOrigin:
        """From a table of constants, what was looked up in it; otherwise other rows."""
        if not self._arguments(call.first):
            return call.others[-1] if call.others else call.first
        if call.name == "__getitem__" and takes_features(call.tensor, call.args[1], call.first.length):
            return call.first
        if call.name in ("__getitem__", "index_select") and (index := index_given(call.name, call.args)) is not None:
            return self._choices.choose(call.first, index[0], call.tensor.shape[index[0]], index[1])
        how = [origin.rows for origin in call.others] or str(call.args[1:])
        return self._derived((call.name, *how), call.first, *call.others)

    def _written_of(self, call: _Call) -> RowOrigin:
        if call.name.startswith(("index_add", "index_copy")) and not self._arguments(call.first):
            index = index_given(call.name, call.args)
            size = 0 if index is None else call.tensor.shape[index[0]]
            if index is not None and (whole := self._choices.put_back(call.others, size, index[1])) is not None:
                return whole
        is_item = call.name == "__setitem__" and len(call.others) == 1
        if call.name == "copy_" and call.others:
            return call.others[0]
        if is_item and rows_indexed(call.args[0], call.args[1], None) is None:
            target, key, value = call.args
            if is_slice(key) and isinstance(value, Tensor) and value.shape == target.shape:
                return call.others[0]  # all of it is written over
            if not picks_row(target, key, call.first.length):
                return self._merged([call.first, *call.others])
        return self._written(call.first, *call.others[-1:])

    def _elementwise(self, call: _Call) -> RowOrigin:
        """Row i of the result is computed from row i of the operands that are not broadcast along the rows."""
        operands = call.operands[call.name == "where" :]
        origins = [origin for _, origin in operands if origin.keys is not None]  # scores, and a mask or a bias
        if not origins:
            of_arguments = [(t, origin) for t, origin in operands if self._arguments(origin)]
            whole = [origin for t, origin in of_arguments if t.numel() == call.out.numel()]
            origins = whole or [origin for _, origin in of_arguments or operands]
            if not whole and len(of_arguments) == len(origins) == 2:  # every row of one with every row of the other
                return origins[0]._replace(keys=origins[1])
        return self._merged(origins)

    def _new(self, call: _Call) -> RowOrigin:
        return self._constant(call.out)

    def _learned(self, origin: RowOrigin, tensor: Tensor, out: Any) -> RowOrigin:
        """The result of a learned function: not scores any more, unless heads are mixed, (B, H, T, S)."""
        if may_mix_rows(tensor, origin.length):
            return self._derived("mixed", origin)
        is_mixture = isinstance(out, Tensor) and out.dim() > 3 and out.shape == tensor.shape
        if origin.keys is not None and tensor.dim() > 3:  # (B, T, S, E), as in additive attention
            is_mixture |= tensor.shape[-1] != origin.keys.length == tensor.shape[-2]
        return origin if origin.keys is None or is_mixture else origin._replace(keys=None)

    def _product(self, operands: list[tuple[Tensor, RowOrigin]]) -> RowOrigin:
        """A matrix product: of queries and keys, of weights and values, or with a learned matrix."""
        (tensor, left), (other, right) = operands
        if left.keys is not None and right.keys is not None:
            return left
        if left.keys is not None or right.keys is not None:
            return self._context(left, right)
        is_constant = [not self._arguments(one) for one in (left, right)]
        is_for_each_text = other.dim() == tensor.dim() > 2 and other.shape[0] == tensor.shape[0] > 1
        if is_constant[1] and not is_constant[0] and not is_for_each_text:  # a learned matrix, not learned queries
            return left
        if is_constant[0] and tensor.dim() < 3:  # of the tokens, if there are as many columns
            return self._derived(("mixed", left.rows), right) if tensor.shape[-1] == right.length else right
        return left._replace(keys=right)

    def _context(self, left: RowOrigin, right: RowOrigin) -> RowOrigin:
        """Weights and values, on either side; with a learned matrix, a mixture of heads."""
        weights, values = (left, right) if left.keys is not None else (right, left)
        queries, keys = _queries_and_keys(weights, values)
        if not self._arguments(values) and not values.rows & (queries.rows | keys.rows):
            return weights
        return queries if values.rows & keys.rows or weights is left else values

    def _joined(self, call: _Call) -> RowOrigin:
        out, is_stack = call.out, call.name == "stack"
        axis = joined_axis(call.name, call.args, call.kwargs, out)
        parts = [(t, origin) for t, origin in call.operands if t.numel()] or call.operands[:1]  # as in an empty cache
        origins = [origin for _, origin in parts]
        shares = all(one.rows == origins[0].rows for one in origins)
        is_other_axis = is_stack or origins[0].length not in (None, parts[0][0].shape[axis])
        if len(parts) == 1 or axis == out.dim() - 1 or (shares and is_other_axis):
            return self._merged(origins)
        if not is_stack and (whole := self._choices.joined(origins)) is not None:
            return whole
        joined = self._derived(("join", *(one.rows for one in origins)), *origins)
        if is_stack:
            return joined
        sizes = [t.shape[axis] for t, _ in parts]
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        self._parts[min(joined.rows)] = list(zip(starts, sizes, origins, strict=True))
        return joined._replace(length=out.shape[axis])

    def _part(self, origin: RowOrigin, part: Rows | None) -> RowOrigin:
        """Some of the rows: those of a tensor that was joined with others, or new ones."""
        if part is None:
            return origin
        for space in origin.rows:
            for *at, joined in self._parts.get(space, ()):
                if (*at, 1) == part:
                    return joined
        return self._choices.cut(origin, part)

    def learn_padding(self, real: Tensor | None) -> None:
        """A self-attention has shown which of its queries are real, (B, T): so they are wherever they ask."""
        if real is not None and not self.reads_one_text_twice:
            self._real.update(dict.fromkeys(self.asked[0].rows, real))

    def known_padding(self, sizes: tuple[int, int, int, int]) -> Tensor | None:
        """(B, T): which queries of the attention that runs are real, where an earlier one has shown it."""
        known = (self._real.get(space) for space in self.asked[0].rows)
        return next((real for real in known if real is not None and real.shape == (sizes[0], sizes[2])), None)

    def joined_padding(self, text: RowOrigin, real: Tensor, sizes: tuple[int, int, int, int]) -> Tensor | None:
        """(B, T): which queries are real, where they are a text with this padding mask, joined with other tokens."""
        for space in self.asked[0].rows:
            for start, size, part in self._parts.get(space, ()):
                if self.relation(part, text) is Relation.SAME and real.shape == (sizes[0], size):
                    return F.pad(real, (start, sizes[2] - start - size), value=True)
        return None

    def _written(self, into: RowOrigin, *values: RowOrigin) -> RowOrigin:
        """Some of the rows are written over: those of another argument take the place of tokens, as an image's do."""
        if not any(map(self._arguments, values)):
            return into
        is_constant, sources = not self._arguments(into), frozenset[int]().union(*(one.sources for one in values))
        if not is_constant and not into.sources & sources:
            return into._replace(sources=into.sources | sources)
        return self._derived(("write", () if is_constant else into.rows, *(one.rows for one in values)), into, *values)

    def _merged(self, origins: Sequence[RowOrigin]) -> RowOrigin:
        """Row i is computed from row i of all; to rows of an argument, constants add nothing."""
        return reduce(RowOrigin.merged, [one for one in origins if self._arguments(one)] or origins)

    def _derived(self, how: Hashable, *parents: RowOrigin) -> RowOrigin:
        """New rows, the same wherever they are made of the same ones in the same way."""
        space = self._space((how, parents[0].rows))
        sources = frozenset[int]().union(*(parent.sources for parent in parents))
        keys = next((parent.keys for parent in parents if parent.keys is not None), None)
        return RowOrigin(frozenset({space}), sources, keys)

    def _constant(self, tensor: Tensor) -> RowOrigin:
        key = ("parameter", id(tensor)) if isinstance(tensor, nn.Parameter) else object()
        space = frozenset({self._space(key)})
        return RowOrigin(space, space)

    def _space(self, key: Hashable) -> int:
        return self._spaces.setdefault(key, len(self._spaces))

    def _add(self, tensor: Tensor, origin: RowOrigin) -> None:
        key, known = id(tensor), self._known
        known[key] = weakref.ref(tensor, lambda _: known.pop(key, None)), origin


_RULES: dict[str, Callable[[RowOrigins, _Call], RowOrigin]] = {
    name: rule
    for group, rule in (
        (names.CONSTANT, RowOrigins._new),
        (names.FIRST, RowOrigins._first),
        (names.LEARNED, RowOrigins._learned_of),
        (names.PRODUCT, RowOrigins._product_of),
        (names.JOIN, RowOrigins._joined),
        (names.MOVE, RowOrigins._moved),
        (names.CHOOSE, RowOrigins._chosen),
        (names.WRITE, RowOrigins._written_of),
    )
    for name in group
}


def _queries_and_keys(weights: RowOrigin, values: RowOrigin) -> Asked:
    """The rows of weights that are multiplied with values: those of the values are the keys, on whichever side."""
    queries, keys = weights._replace(keys=None), weights.keys or _LOST
    return (keys, queries) if values.rows & queries.rows and not values.rows & keys.rows else (queries, keys)
