"""What cuts change in one attention call: the edges that they remove or replace, and what a head hands over instead.

An edge is removed before the softmax, as by a mask, so only the rows of its queries are computed again. An edge that is
replaced has its weight of another run, after the softmax; the query's other weights stay. A head is replaced in the
context, (B, H, T, D), that the model's own kernel returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.call import Call
from regard.attention.masks import Mask
from regard.attention.routes import attend_rows
from regard.heads.calls.basis import How
from regard.heads.calls.call import WatchedCall, changed, names_in_short

Value = int | float | str | Tensor  # what a head hands over: 0, "mean", or a tensor that broadcasts to (B, T, D)
_WEIGHTS = 1 << 24  # weights that are written out at a time where edges are removed


@dataclass(frozen=True, repr=False, eq=False)
class RemovedEdges(Mask):
    """Some queries may not see some keys: edge n is of query rows[n] and key cols[n] of this call."""

    rows: Tensor  # (N,)
    cols: Tensor  # (N,)
    texts: Tensor | None = None  # (N,), the text of each edge; None: all texts
    batch: int = 1
    heads: Tensor | None = None  # (H,) bool, the heads that lose the edges; None: all heads

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        own_rows, own_cols = _places(self.rows, rows), _places(self.cols, cols)
        inside = (own_rows >= 0) & (own_cols >= 0)
        hidden = torch.zeros(self.batch, 1, len(rows), len(cols), dtype=torch.bool, device=rows.device)
        text = 0 if self.texts is None else self.texts.to(rows.device)[inside]
        hidden[text, 0, own_rows[inside], own_cols[inside]] = True
        return ~(hidden if self.heads is None else hidden & self.heads.to(rows.device)[:, None, None])

    @property
    def kind(self) -> str:
        return "removed edges"


class ReplacedEdges(NamedTuple):
    """Some weights are those of another run: edge n is of query rows[n] and key cols[n] of this call."""

    rows: Tensor  # (N,)
    cols: list[int]
    texts: list[slice]  # those of each edge
    weights: list[Tensor]  # of each edge, (B or 1, H)
    heads: list[int]  # that have the other weights

    def put_into(self, weights: Tensor, rows: Tensor) -> Tensor:
        """The weights of these rows, (B, H, R, S), with the edges in them."""
        new, B = weights.clone(), len(weights)
        places = _places(self.rows, rows).tolist()
        for row, col, texts, value in zip(places, self.cols, self.texts, self.weights, strict=True):
            if row >= 0:
                there = value.expand(B, -1)[texts][:, self.heads].to(new)
                new[texts, self.heads, row, col] = there
        return new


def _places(wanted: Tensor, present: Tensor) -> Tensor:
    """Where in `present` each number is; −1 where it is not."""
    size = int(max(wanted.max(), present.max())) + 1 if len(wanted) and len(present) else 1
    places = torch.full((size,), -1, device=present.device)
    places[present] = torch.arange(len(present), device=present.device)
    return places[wanted.to(present.device)] if len(present) else torch.full_like(wanted, -1)


class Positions(NamedTuple):
    """Where a call stands in its text, with what was cached before it."""

    query: int  # the position of its first query
    key: int  # the position of its first key


START = Positions(0, 0)
# finds the edges of a call: (text, row, column), those that are in it; text None: all texts
FindEdges = Callable[[WatchedCall, Positions], Sequence[tuple[int | None, int, int]]]
# finds the queries of a call that are concerned: (B or 1, T) bool
FindRows = Callable[[WatchedCall, Positions], Tensor]
OtherWeights = Callable[[int, int], Tensor]  # of the edge (query, key) in another run, (B or 1, H)


@dataclass(frozen=True)
class LayerEdit:
    """What one cut changes in one layer."""

    layer: int
    values: Mapping[int, Value]  # by head: what it hands over
    find_edges: FindEdges | None = None
    edge_heads: Sequence[int] | None = None  # that lose the edges; None: all
    by_text: Sequence[Sequence[int]] | None = None  # the heads that are cut in each text; None: all, in all
    find_rows: FindRows | None = None  # where heads hand over something else; None: everywhere
    other_weights: OtherWeights | None = None  # replaces edges, which are removed otherwise

    @property
    def names_heads(self) -> bool:
        """Are some heads changed, and not all alike?"""
        return bool(self.values) or self.edge_heads is not None

    def is_like(self, other: LayerEdit) -> bool:
        """Does it change the same in another layer?"""
        plain = not any(isinstance(value, Tensor) for value in (*self.values.values(), *other.values.values()))
        own, theirs = (
            (one.find_edges is None, one.edge_heads, one.by_text, one.other_weights is None) for one in (self, other)
        )
        return plain and self.values == other.values and own == theirs

    def check(self, call: WatchedCall) -> None:
        """Raise ValueError where a head does not exist, or the batch is not the one that was to be cut."""
        B, H, _, _ = call.sizes
        if self.names_heads and call.origin.basis.heads.how in (How.ASSUMED, How.UNKNOWN):
            where = call.origin.module or "the model itself"
            raise ValueError(
                f"cannot cut a head of {where}: where its heads are is assumed, not known "
                f"({call.origin.basis.heads.reason}); it is known where the module makes its queries by a projection"
            )
        if self.by_text is not None and len(self.by_text) != B:
            raise ValueError(
                f"layer {self.layer} attends in {B} texts, and the model was called with {len(self.by_text)}, each "
                "with other heads cut; such a model can be cut by regard.cut only"
            )
        for head in (*self.values, *(self.edge_heads or ())):
            if head >= H:
                heads = "head 0 only" if H == 1 else f"heads 0 to {H - 1}"
                where = names_in_short([call.origin.module]) if call.origin.module else "the model itself"
                raise ValueError(f"layer {self.layer} ({where}) has {heads}, and head {head} was to be cut")

    def removed(self, call: WatchedCall, positions: Positions) -> RemovedEdges | None:
        """The edges of this call that are removed."""
        if self.find_edges is None or self.other_weights is not None:
            return None
        B, H, _, _ = call.sizes
        edges = self.find_edges(call, positions)
        if not edges:
            return None
        in_all = edges[0][0] is None
        texts, rows, cols = torch.tensor([(text or 0, row, col) for text, row, col in edges], device=call.device).T
        cut = self.edge_heads
        heads = None if cut is None else torch.tensor([head in cut for head in range(H)], device=call.device)
        return RemovedEdges(rows, cols, None if in_all else texts, 1 if in_all else B, heads)

    def replaced(self, call: WatchedCall, positions: Positions) -> ReplacedEdges | None:
        """The edges of this call that have their weights of another run."""
        edges = [] if self.find_edges is None or self.other_weights is None else self.find_edges(call, positions)
        if self.other_weights is None or not edges:
            return None
        B, H, _, _ = call.sizes
        weights = [self.other_weights(row + positions.query, col + positions.key) for _, row, col in edges]
        if wrong := [one.shape for one in weights if one.shape not in {(1, H), (B, H)}]:
            raise ValueError(
                f"layer {self.layer} attends in {B} texts with {H} heads here, and in {wrong[0][0]} with {wrong[0][1]} "
                "in the other run; give the report of as many texts"
            )
        texts = [slice(None) if text is None else slice(text, text + 1) for text, _, _ in edges]
        heads = list(range(H)) if self.edge_heads is None else list(self.edge_heads)
        rows = torch.tensor([row for _, row, _ in edges], device=call.device)
        return ReplacedEdges(rows, [col for _, _, col in edges], texts, weights, heads)

    def hand_over(self, context: Tensor, call: WatchedCall, positions: Positions = START) -> Tensor:
        """The context with this cut's values in place of its heads'; gradients reach the other heads only."""
        if not self.values:
            return context
        by_text = [list(self.values)] if self.by_text is None else self.by_text
        chosen = torch.tensor([[head in heads for head in range(context.shape[1])] for heads in by_text])
        chosen = chosen[:, :, None, None].to(context.device)  # (B or 1, H, 1, 1)
        if self.find_rows is not None:
            chosen = chosen & self.find_rows(call, positions)[:, None, :, None].to(context.device)
        if all(isinstance(value, (int, float)) and value == 0 for value in self.values.values()):
            return torch.where(chosen, context.new_zeros(()), context)  # keeps the kernel's strides
        values = torch.zeros_like(context)
        for head, value in self.values.items():
            if isinstance(value, str):
                values[:, head] = self._mean(context[:, head], call)
            elif isinstance(value, Tensor):
                B, _, T, D = context.shape
                shape = tuple(value.shape)
                if shape not in {(D,), (T, D), (B, T, D)}:
                    raise ValueError(
                        f"head {self.layer}.{head} hands over {B} × {T} × {D} numbers (texts × tokens × width) here, "
                        f"and is to hand over values of shape {shape}; give ({D},), ({T}, {D}) or ({B}, {T}, {D})"
                    )
                values[:, head] = value.to(context.device, context.dtype)
        return torch.where(chosen, values, context)

    def _mean(self, context: Tensor, call: WatchedCall) -> Tensor:
        """(D,): the mean over the real tokens of this forward; (B, 1, D) of each text, where texts differ in cuts."""
        _, _, T, S = call.sizes
        if S - call.origin.extra > T and not call.origin.across:
            raise ValueError(
                f'to="mean" is the mean over the tokens of one forward, and this one has {T} of {S} tokens, the others '
                "are cached; give the values: to={(layer, head): tensor of the head's width}"
            )
        rows = context.detach().to(torch.promote_types(context.dtype, torch.float32))
        real = torch.ones_like(rows[..., 0], dtype=torch.bool) if call.origin.real is None else call.origin.real
        real = real.to(rows.device)
        if self.by_text is None:
            return rows[real].mean(0) if bool(real.any()) else rows.new_zeros(rows.shape[-1])
        sums, counts = rows.masked_fill(~real[..., None], 0).sum(1, keepdim=True), real.sum(1)[:, None, None]
        return sums / counts.clamp(min=1)


@runtime_checkable
class Editor(Protocol):
    """A cut: what it changes in each layer."""

    removes_edges: bool
    everywhere: bool  # does it concern every layer, whatever their number?

    def at(self, layer: int) -> LayerEdit | None:
        """What changes in this layer; None: nothing."""


class PlacedEdit(NamedTuple):
    """An edit, the call as its model knows it, and where that is in the text."""

    edit: LayerEdit
    call: WatchedCall
    positions: Positions


class CallEdit:
    """All that is changed in one call, by every cut that is active: edges first, then heads, the innermost cut last."""

    def __init__(self, edits: Sequence[PlacedEdit]) -> None:
        self.edits = edits
        for edit, call, _ in edits:
            edit.check(call)
        masks = [edit.removed(call, positions) for edit, call, positions in edits]
        self.masks = [mask for mask in masks if mask is not None]
        self.removed: Mask | None = reduce(and_, self.masks) if self.masks else None
        replaced = [edit.replaced(call, positions) for edit, call, positions in edits]
        self.replaced = [edges for edges in replaced if edges is not None]

    @property
    def differs_by_text(self) -> bool:
        """Are edges changed in some texts only?"""
        whole = slice(None)
        return any(mask.texts is not None for mask in self.masks) or any(
            text != whole for edges in self.replaced for text in edges.texts
        )

    def rows(self) -> Tensor:
        """(R,): the queries that lose an edge, or have another one."""
        rows = [mask.rows for mask in self.masks] + [edges.rows for edges in self.replaced]
        unique: Tensor = torch.cat(rows).unique()
        return unique

    def with_replaced(self, weights: Tensor, rows: Tensor | None = None) -> Tensor:
        """Weights, (B, H, R, S), with those edges of another run that are in these rows. [default: all rows]"""
        rows = torch.arange(weights.shape[2], device=weights.device) if rows is None else rows
        for edges in self.replaced:
            weights = edges.put_into(weights, rows)
        return weights

    def replace_heads(self, context: Tensor) -> Tensor:
        """(B, H, T, D), with other values where heads are cut."""
        for edit, call, positions in self.edits:
            context = edit.hand_over(context, call, positions)
        return context

    def replace_rows(self, context: Tensor, call: Call) -> Tensor:
        """(B, H, T, D), with the rows of the removed edges computed again, a few at a time."""
        return self._with_rows(context, call, 0)

    def replace_weights(self, weights: Tensor, call: Call) -> Tensor:
        """(B, H, T, S), likewise."""
        return self._with_rows(weights, call, 1)

    def _with_rows(self, whole: Tensor, call: Call, index: int) -> Tensor:
        if self.removed is None and not self.replaced:
            return whole
        if self.replaced and call.dropout:
            raise ValueError("dropout is on, so that weights of another run cannot take their place; call model.eval()")
        B, H, _, S = call.sizes
        call, rows = call if self.removed is None else changed(call, mask=call.mask & self.removed), self.rows()
        parts = [self._rows(call, some)[index] for some in rows.split(max(1, _WEIGHTS // max(B * H * S, 1)))]
        return whole.clone().index_copy_(2, rows, torch.cat(parts, 2).to(whole.dtype))  # with the kernel's strides

    def _rows(self, call: Call, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The context and the weights of these rows, with the edges of another run."""
        context, weights = attend_rows(call, rows)
        if not self.replaced:
            return context, weights
        weights = self.with_replaced(weights, rows)
        v = call.v.repeat_interleave(weights.shape[1] // call.v.shape[1], 1)
        return weights @ v.to(weights.dtype), weights

    def all_weights(self, call: Call) -> Tensor:
        """(B, H, T, S), with all edges as they are now."""
        call = call if self.removed is None else changed(call, mask=call.mask & self.removed)
        rows = torch.arange(call.sizes[2], device=call.device)
        return self._rows(call, rows)[1]
