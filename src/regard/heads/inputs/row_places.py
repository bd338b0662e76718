"""Which token each number of a tensor belongs to, followed through views by doing them again with labels.

Row spaces (row_origin.py) say of which argument the rows are; views that bring tokens into another order keep these.
Labels are expanded along features, so that they take a number for each token, whatever the width.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
from torch import Tensor

from regard.heads.calls.call import Args, Kwargs
from regard.heads.calls.lineage import PERMUTE, SLICE, VIEWS, einsum_terms
from regard.heads.calls.score_origin import learned, tensors_among
from regard.heads.inputs.row_functions import CHOOSE, CONSTANT, LEARNED, MOVE, PRODUCT, WRITE

_MOST = 1 << 22  # labels of a tensor that is not expanded
_FREE = {*PERMUTE, *SLICE, "view", "unsqueeze", "squeeze", "expand", "unflatten", "select"}  # views of the same labels
_VIEWS = VIEWS - {"view_as_complex", "view_as_real"}


class RowPlaces:
    """The labels of the tensors of a forward, each with the tensor that they are of: others say nothing of these."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}
        self._sizes: list[tuple[int, ...]] = []  # of what labels began with, without its features

    def of(self, tensor: Any) -> tuple[int, Tensor] | None:
        entry = self._known.get(id(tensor))
        return entry[1:] if entry is not None and entry[0]() is tensor else None

    def follow(self, name: str, function: Any, args: Args, kwargs: Kwargs, out: Any) -> None:
        """A function was called, and returned this."""
        if name == "__setitem__" or name in WRITE:
            self._known.pop(id(args[0]), None)
            return
        if name in _VIEWS:
            self._view(name, function, args, kwargs, out)
        elif name in LEARNED:
            tensors = list(tensors_among((*args, *kwargs.values())))
            self.hand_on(next((t for t in tensors if not t.is_floating_point()), tensors[0]), out)
        elif name in PRODUCT:
            if len(args) > 1 and isinstance(args[1], Tensor) and learned(args[1]):
                self.hand_on(args[0], out)
        elif isinstance(out, Tensor) and name not in CHOOSE | MOVE | CONSTANT:
            known = (self.of(t) for t in tensors_among((*args, *kwargs.values())) if t.shape == out.shape)
            self._add(out, next((one for one in known if one is not None), None))

    def hand_on(self, tensor: Any, out: Any) -> None:
        """Each row of the result is computed from the same row."""
        if not isinstance(tensor, Tensor) or not isinstance(out, Tensor) or tensor.is_nested or out.is_nested:
            return
        if not tensor.is_floating_point() and tensor.shape == out.shape[:-1]:  # token ids, in an embedding
            start, labels = self.of(tensor) or self._start(tensor)
            self._add(out, (start, labels.unsqueeze(-1).expand(out.shape)))
        elif tensor.shape[:-1] == out.shape[:-1] and tensor.is_floating_point() and tensor.dim() > 1:
            start, labels = self._of_rows(tensor)
            self._add(out, (start, labels[..., :1].expand(out.shape)))

    def are_moved(self, name: str, args: Args, queries: Tensor, keys: Tensor) -> bool:
        """Are the factors of scores, or the queries and keys of SDPA, the same tokens in another order?"""
        known = self.of(queries), self.of(keys)
        if known[0] is None or known[1] is None or known[0][0] != known[1][0]:
            return False
        one, other = known[0][1], known[1][1]
        if name == "einsum":
            one, other = _as_matrices(args[0], one, other)
        elif name in PRODUCT:
            other = other.mT
        if not (_is_constant(one) and _is_constant(other)):
            return False
        one, other = one[..., 0], other[..., 0]
        if one.dim() == other.dim() == 3 and one.shape[1] != other.shape[1]:  # heads share keys
            one, other = one[:, 0], other[:, 0]
        return one.shape == other.shape and not torch.equal(one, other)

    def are_across(self, name: str, args: Args, queries: Tensor, keys: Tensor) -> bool:
        """Where there are as many texts as tokens: are the queries of a text along the texts of what they came from?"""
        known, other = self.of(queries), self.of(keys)
        if known is None or other is None or len(set(sizes := self._sizes[known[0]])) > 1 or len(sizes) != 2:
            return False
        rows = _as_matrices(args[0], known[1], other[1])[0] if name == "einsum" else known[1]
        rows = rows.transpose(0, 1) if name == "multi_head_attention_forward" else rows  # (T, B, E)
        return rows.shape[-2] > 1 and bool((rows[..., 1, 0] - rows[..., 0, 0] == sizes[1]).all())

    def _of_rows(self, tensor: Tensor) -> tuple[int, Tensor]:
        """The labels of a tensor whose last axis is of features; new ones, where it was not."""
        known = self.of(tensor)
        return known if known is not None and _is_constant(known[1]) else self._start(tensor)

    def _start(self, tensor: Tensor) -> tuple[int, Tensor]:
        lead = tensor.shape[:-1] if tensor.is_floating_point() else tensor.shape  # ids are no features
        self._sizes.append(tuple(lead))
        labels = torch.arange(math.prod(lead)).view(lead)
        labels = labels.unsqueeze(-1).expand(tensor.shape) if tensor.is_floating_point() else labels
        self._add(tensor, (len(self._sizes) - 1, labels))
        return len(self._sizes) - 1, labels

    def _view(self, name: str, function: Any, args: Args, kwargs: Kwargs, out: Any) -> None:
        parts, starts = list(tensors_among((out,), longest=_MOST)), set[int]()
        tensors = list(tensors_among((*args, *kwargs.values()), longest=99))
        is_index = name == "__getitem__" and len(tensors) > 1
        if is_index or not self._may_have_labels(tensors):
            return
        if name not in _FREE and sum(part.numel() for part in parts) > _MOST:
            return

        def label(value: Any) -> Any:
            if isinstance(value, Tensor):
                start, labels = self.of(value) or self._start(value)
                starts.add(start)
                return labels
            is_list = type(value) in (tuple, list) and any(isinstance(one, Tensor) for one in value)
            return type(value)(map(label, value)) if is_list else value

        function = Tensor.reshape if name in ("view", "_unsafe_view") else function
        labels = function(*map(label, args), **{key: label(value) for key, value in kwargs.items()})
        if len(starts) == 1:
            for part, one in zip(parts, tensors_among((labels,), longest=_MOST), strict=True):
                self._add(part, (min(starts), one))

    def _may_have_labels(self, tensors: list[Tensor]) -> bool:
        """Are these vectors of tokens, or all of them token ids, and none an index into another?"""
        are_ids = tensors[0].dtype in (torch.int64, torch.int32)
        if any(t.is_nested or t.is_floating_point() is are_ids for t in tensors):
            return False
        return all(t.dim() > 1 or self.of(t) is not None for t in tensors)

    def _add(self, tensor: Tensor, known: tuple[int, Tensor] | None) -> None:
        if known is not None:
            self._known[id(tensor)] = weakref.ref(tensor), *known


def _as_matrices(equation: str, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """The labels of the factors of an einsum as (…, T, D) and (…, S, D)."""
    terms, result = einsum_terms(equation)
    shared = [letter for letter in terms[0] if letter in terms[1]]
    both, summed = ([one for one in shared if (one in result) is kept] for kept in (True, False))
    orders = [[*both, *(one for one in term if one not in shared), *summed] for term in terms]
    return left.permute(*map(terms[0].index, orders[0])), right.permute(*map(terms[1].index, orders[1]))


def _is_constant(labels: Tensor) -> bool:
    """Are the labels of all features of a row the same?"""
    if labels.shape[-1] < 2 or labels.stride(-1) == 0:
        return True
    return labels.numel() <= _MOST and bool((labels == labels[..., :1]).all())
