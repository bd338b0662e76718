"""cut: switch off heads, or what a token sees of another, while a model runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from typing import Any

from torch import Tensor, nn

from regard.heads.calls.edits import LayerEdit, OtherWeights, Value
from regard.heads.change.cut_edges import CutEdges, CutRows, Edges, Token, checked_edges, is_number
from regard.heads.inputs.pieces import reader_of
from regard.heads.intercept.intercept import intercept
from regard.heads.report.report import Seen
from regard.heads.report.views import Head
from regard.support.super_init import check_initialised, missing_init_explained

HeadNumber = tuple[int, int]  # (layer, head)
Layers = Sequence[int] | int | None
Heads = HeadNumber | Head | Sequence[HeadNumber | Head]
To = int | float | str | Tensor | Mapping[HeadNumber, Tensor] | Seen


@contextmanager
def cut(
    model: nn.Module,
    heads: Heads | None = None,
    *,
    edges: Edges = None,
    layers: Layers = None,
    to: To = 0,
    positions: Token | Sequence[Token] | None = None,
    tokenizer: Any = None,
) -> Iterator[None]:
    """Switch off heads, or edges between tokens, while the model runs inside the block; the model stays as it is.

    >>> import torch, regard
    >>> layer = regard.MultiHeadAttention(d_in=8, d_out=8, context_length=16, dropout=0.0, num_heads=2)
    >>> x = torch.randn(1, 5, 8)
    >>> with regard.cut(layer, [(0, 0), (0, 1)]):          # layer 0, both heads: only the bias of out_proj is left
    ...     out = layer(x)
    >>> torch.equal(out, layer.out_proj.bias.expand(1, 5, 8))
    True
    >>> with regard.cut(layer, edges=[(4, 0)]), regard.watch(layer) as seen:   # token 4 may not see token 0
    ...     out = layer(x)
    >>> seen[0].weights(rows=4)[0, :, 0, 0]
    tensor([0., 0.])

    heads: (layer, head), a head of a report (`seen[0, 2]`), or several: `[(0, 2), (4, 3)]`, `seen.heads(role=…)`.
        Layers are numbered as in `seen`: in the order in which they attend.
    to: what a head that is cut hands over, in place of its context (weights · values, before the output projection):
        0: nothing. [default]
        "mean": the head's own mean over all real tokens (not padding, by the model's attention_mask) of all texts of
            this forward, one vector for every token, without gradient. A forward that continues a cache has not all
            tokens, and is refused: give values.
        a tensor, (D,), (T, D) or (B, T, D), for every head named; or {(layer, head): tensor}.
        `seen` of another run, watched with `watch(model, values=True)`: what the head handed over there, (B, T, D).
    positions: the tokens at which a head hands over something else, positions or words; at all others it hands over its
        own. [default: all tokens]
    edges: (query, key) pairs: this query may not see this key. Its score becomes −∞ before the softmax, so that the
        query's other weights grow to 1 in sum; a query that is left without keys gets 0. Positions count from 0 in the
        text (with a cache: in the whole text, with padding), or words, as `seen.tokens` has them: "sat", "the@4"; a
        word of several tokens is all of them. With several texts, a word is looked up in each.
        With `to=seen` the edge is not removed: after the softmax it gets the weight that it had in the other run, and
        the query's other weights stay as they are.
    layers: the layers in which edges are removed. [default: all, in a model without cross-attention] With `heads`,
        edges are removed in these heads only.
    tokenizer: reads token ids, where edges or positions are words. [default: model.tokenizer, if there is one]

    Works wherever `regard.watch` sees attention, and as exactly; where something cannot be cut, it is an error that
    says why: among others, where weights are multiplied twice, so that a head would be cut in part, and where it is
    assumed, not known, where the heads are. Gradients flow through what is left. Nested cuts add up; where two cut
    one head, the inner one decides. A watch, around a cut or inside, sees what the cut leaves: removed edges have
    weight 0; a head that is cut keeps its weights. Weights that a model returns itself (output_attentions) are
    those before edges were removed. Other threads are not cut. Compiled models run uncompiled meanwhile, torch.nn
    without its fast path, and gpt.generate() without its decoders; a layer that is cut cannot be in
    torch.utils.checkpoint.

    Raises ValueError at the end of the block where a layer or an edge was never there, or the model was not called.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"cut() takes a torch.nn.Module and this is a {type(model).__name__}; give the model itself")
    check_initialised(model)
    reader = reader_of(model, tokenizer) if edges or positions is not None else None
    plan = CutPlan(head_numbers(heads), edges, layers, to, reader, positions)
    if plan.is_empty:
        yield
        return
    with missing_init_explained(), intercept(model, editor=plan) as forwards:
        yield
    plan.check_done(len(forwards.layers))


class CutPlan:
    """What a cut changes, by layer."""

    def __init__(
        self,
        heads: list[HeadNumber] | None,
        edges: Edges,
        layers: Layers,
        to: To,
        reader: Any,
        positions: Token | Sequence[Token] | None = None,
    ) -> None:
        _check_named(heads, edges, layers, to, positions)
        self.rows = None if positions is None else CutRows(positions, reader)
        self.other = to if edges is not None and isinstance(to, Seen) else None
        one_text = heads is None and layers is None
        self.edges = None if edges is None else CutEdges(checked_edges(edges), reader, one_text)
        self.heads = heads
        listed: Any = [layers] if is_number(layers) else () if layers is None else layers
        self.named_layers = {layer for layer, _ in heads or ()} | {_number(one, "layer") for one in listed}
        self.values = {} if edges is not None else handed_over(heads or [], to)
        self.removes_edges = self.edges is not None and bool(self.edges.edges)
        self.everywhere = self.removes_edges and one_text

    @property
    def is_empty(self) -> bool:
        """Is nothing to be changed?"""
        if self.edges is None:
            return not self.values
        return not (self.removes_edges and (self.everywhere or self.named_layers))

    def at(self, layer: int) -> LayerEdit | None:
        """What changes in this layer."""
        if not self.everywhere and layer not in self.named_layers:
            return None
        heads = [head for number, head in self.heads or () if number == layer]
        if self.edges is None:
            rows = None if self.rows is None else self.rows.find
            return LayerEdit(layer, {head: self.values[layer, head] for head in heads}, find_rows=rows)
        chosen = None if self.heads is None else heads
        return LayerEdit(layer, {}, self.edges.find, chosen, other_weights=self._other_weights(layer))

    def _other_weights(self, layer: int) -> OtherWeights | None:
        """The weights of the other run in this layer."""
        if self.other is None:
            return None
        there = self.other[layer]
        return lambda query, key: there.weights(rows=query, cols=key)[:, :, 0, 0]

    def check_done(self, count: int) -> None:
        """Raise ValueError where something that was named did not run."""
        if missing := {layer for layer in self.named_layers if layer >= count}:
            exist = "layer 0 only" if count == 1 else f"layers 0 to {count - 1}"
            raise ValueError(f"layer {min(missing)} was to be cut, and the model attended in {exist} inside the block")
        for places in (self.edges, self.rows):
            if places is not None:
                places.check_met()


def _check_named(heads: object, edges: object, layers: object, to: To, positions: object) -> None:
    if heads is None and edges is None:
        raise ValueError("nothing is named to be cut; give heads, (layer, head), or edges=[(query, key)]")
    if edges is None and layers is not None:
        raise ValueError("layers are those in which edges are cut; give edges, or heads as (layer, head)")
    if edges is not None and heads is not None and layers is not None:
        raise ValueError("heads say in which layers edges are cut; leave layers out, or heads")
    if edges is not None and positions is not None:
        raise ValueError("edges say which queries are concerned; leave positions out, or edges")
    if edges is not None and not (_is_zero(to) or isinstance(to, Seen)):
        raise ValueError(
            "to= is what a head hands over; edges are removed, or replaced by those of another run, to=seen; leave it "
            "out, or cut the head"
        )


def _is_zero(to: object) -> bool:
    return isinstance(to, (int, float)) and to == 0


def head_numbers(heads: Heads | None) -> list[HeadNumber] | None:
    """(layer, head) of each head that is named."""
    if heads is None:
        return None
    if isinstance(heads, str):
        raise ValueError(f"a head is (layer, head) and this is {heads!r}; give numbers: (4, 3)")
    if isinstance(heads, Head) or (isinstance(heads, tuple) and len(heads) == 2 and is_number(heads[0])):
        return [_head(heads)]
    return list(dict.fromkeys(_head(head) for head in heads))


def _head(head: Any) -> HeadNumber:
    if isinstance(head, Head):
        return head.layer, head.head
    if not isinstance(head, Sequence) or isinstance(head, str) or len(head) != 2:
        raise ValueError(f"a head is (layer, head) and this is {head!r}; several are a list: [(0, 2), (4, 3)]")
    return _number(head[0], "layer"), _number(head[1], "head")


def _number(value: Any, what: str) -> int:
    if not is_number(value) or index(value) < 0:
        raise ValueError(f"{what} {value!r} must be a whole number from 0; {what}s are numbered as in regard.watch")
    return index(value)


def handed_over(heads: list[HeadNumber], to: To) -> dict[HeadNumber, Value]:
    """What each head hands over."""
    if isinstance(to, Seen):
        return {(layer, head): to[layer, head].context for layer, head in heads}
    if isinstance(to, Mapping):
        if set(to) != set(heads):
            missing, other = sorted(set(heads) - set(to)), sorted(set(to) - set(heads))
            fault = f"has no values for {missing[0]}" if missing else f"has values for {other[0]}, which is not cut"
            raise ValueError(f"to {fault}; give a tensor for each head that is cut")
        for head, value in to.items():
            if not isinstance(value, Tensor):
                raise ValueError(f"to[{head}] must be a tensor and is a {type(value).__name__}")
        return dict(to)
    if isinstance(to, Tensor) or to == "mean" or _is_zero(to):
        return dict.fromkeys(heads, to)
    raise ValueError(
        f'to={to!r} is not known; a head hands over 0, "mean", a tensor, {{(layer, head): tensor}}, or what it did in '
        "a report with values: to=seen"
    )
