"""cut: switch off heads, or what a token sees of another, while a model runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from operator import index
from typing import Any

import torch
from torch import Tensor, nn

from regard.heads.calls.call import TextIds, WatchedCall
from regard.heads.calls.edits import LayerEdit, Positions, Value
from regard.heads.calls.visibility import visible_tile
from regard.heads.inputs.pieces import TextReader, reader_of
from regard.heads.intercept.intercept import intercept
from regard.heads.report.report import Seen
from regard.heads.report.texts import read_texts, span_of
from regard.heads.report.views import Head
from regard.support.super_init import check_initialised, missing_init_explained
from regard.support.tokens import TextTokens

HeadNumber = tuple[int, int]  # (layer, head)
Token = int | str
Edges = Sequence[tuple[Token, Token]] | None
Layers = Sequence[int] | int | None
Pair = tuple[int | None, int, int]  # (text, query, key); text None: all texts
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
    edges: (query, key) pairs: this query may not see this key. Its score becomes −∞ before the softmax, so that the
        query's other weights grow to 1 in sum; a query that is left without keys gets 0. Positions count from 0 in the
        text (with a cache: in the whole text, with padding), or words, as `seen.tokens` has them: "sat", "the@4"; a
        word of several tokens is all of them. With several texts, a word is looked up in each.
    layers: the layers in which edges are removed. [default: all, in a model without cross-attention] With `heads`,
        edges are removed in these heads only.
    tokenizer: reads token ids, where edges are words. [default: model.tokenizer, if there is one]

    Works wherever `regard.watch` sees attention, and as exactly; where something cannot be cut, it is an error that
    says why: among others, where weights are multiplied twice, so that a head would be cut in part, and where it is
    assumed, not known, where the heads are. Gradients flow through what is left. Nested cuts add up; where two cut one head, the inner one decides. A
    watch, around a cut or inside, sees what the cut leaves: removed edges have weight 0; a head that is cut keeps its
    weights. Weights that a model returns itself (output_attentions) are those before edges were removed. Other threads
    are not cut. Compiled models run uncompiled meanwhile, torch.nn without its fast path, and gpt.generate() without
    its decoders; a layer that is cut cannot be in torch.utils.checkpoint.

    Raises ValueError at the end of the block where a layer or an edge was never there, or the model was not called.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"cut() takes a torch.nn.Module and this is a {type(model).__name__}; give the model itself")
    check_initialised(model)
    plan = CutPlan(head_numbers(heads), edges, layers, to, reader_of(model, tokenizer) if edges else None)
    if plan.is_empty:
        yield
        return
    with missing_init_explained(), intercept(model, editor=plan) as forwards:
        yield
    plan.check_done(len(forwards.layers))


class CutEdges:
    """Edges that are to be removed, and which of them were there. one_text: in a model that reads no second text."""

    def __init__(self, edges: Sequence[tuple[Token, Token]], reader: TextReader | None, one_text: bool = False) -> None:
        self.edges, self.reader, self.one_text = edges, reader, one_text
        self.met: set[int] = set()  # edges whose query and key were both in a call
        self.visible: set[int] = set()  # edges whose query could see the key
        self.lengths = (0, 0)  # the most queries and keys that a text had
        self._found: dict[bool, tuple[int, list[list[Pair]]]] = {}  # by across: batch, and the pairs of each edge

    def find(self, call: WatchedCall, positions: Positions) -> list[Pair]:
        """(text, row, column) of the edges that are in this call."""
        if self.one_text and call.origin.across:
            raise ValueError(
                f"{call.origin.module or 'the model'} is cross-attention, whose queries and keys are different texts; "
                "name the layers in which edges are cut: layers=[…]"
            )
        _, _, T, S = call.sizes
        self.lengths = max(self.lengths[0], positions.query + T), max(self.lengths[1], positions.key + S)
        found = []
        for number, pairs in enumerate(self._pairs(call, positions)):
            for text, query, key in pairs:
                row, col = query - positions.query, key - positions.key
                if 0 <= row < T and 0 <= col < S:
                    self.met.add(number)
                    if number not in self.visible and _can_see(call, text, row, col):
                        self.visible.add(number)
                    found.append((text, row, col))
        return found

    def check_met(self) -> None:
        """Raise ValueError where an edge was never there, or could never be seen."""
        T, S = self.lengths
        for number, (query, key) in enumerate(self.edges):
            beyond = any(isinstance(token, int) and token >= size for token, size in ((query, T), (key, S)))
            if number not in self.met and beyond:
                raise ValueError(
                    f"edge {(query, key)} was not there to cut: the layers concerned had {T} queries and {S} keys; "
                    "positions count from 0"
                )
            if number not in self.visible:
                raise ValueError(
                    f"edge {(query, key)} was not there to cut: this query cannot see this key anyway, in any layer "
                    f"concerned; an edge is (query, key), did you mean {(key, query)}?"
                )

    def _pairs(self, call: WatchedCall, positions: Positions) -> list[list[Pair]]:
        """The pairs of positions of each edge."""
        if not any(isinstance(token, str) for edge in self.edges for token in edge):
            return [[(None, int(query), int(key))] for query, key in self.edges]
        B, _, T, S = call.sizes
        is_continued = (not call.origin.across and T < S) or (call.origin.across and positions.query > 0)
        batch, pairs = self._found.get(call.origin.across, (0, []))
        if not is_continued or batch != B:  # words are looked up in the text that a generation starts with
            queries, keys = self._texts(call)
            pairs = [
                [
                    (text, query, key)
                    for text in range(B)
                    for query, key in product(_places(edge[0], queries, text), _places(edge[1], keys, text))
                ]
                for edge in self.edges
            ]
            self._found[call.origin.across] = B, pairs
        return pairs

    def _texts(self, call: WatchedCall) -> tuple[list[TextTokens], list[TextTokens]]:
        """The tokens of queries and keys, for each text."""
        if self.reader is None:
            raise ValueError(
                "edges name words, and no tokenizer is known to read the token ids; give it: cut(…, tokenizer=…), or "
                "use positions"
            )
        origin = call.origin
        queries, keys = origin.query_text, origin.key_text
        if not origin.across:
            queries = keys = None if origin.tokens is None else TextIds(origin.tokens, origin.real)
        if queries is None or keys is None:
            raise ValueError(
                "edges name words, and the model was not called with token ids that can be seen; use positions"
            )
        return read_texts(self.reader, queries.ids, origin.real), read_texts(self.reader, *keys)


def _places(token: Token, texts: Sequence[TextTokens], text: int) -> Sequence[int]:
    """The positions of a token; a word may be several tokens."""
    return span_of(token, texts, text) if isinstance(token, str) else [token]


def _can_see(call: WatchedCall, text: int | None, row: int, col: int) -> bool:
    """May the query see the key, in any head?"""
    tile = visible_tile(call, torch.tensor([row], device=call.device))
    tile = tile if text is None or tile.shape[0] == 1 else tile[text : text + 1]
    return bool(tile[..., col].any())


class CutPlan:
    """What a cut changes, by layer."""

    def __init__(self, heads: list[HeadNumber] | None, edges: Edges, layers: Layers, to: To, reader: Any) -> None:
        _check_named(heads, edges, layers, to)
        one_text = heads is None and layers is None
        self.edges = None if edges is None else CutEdges(_checked_edges(edges), reader, one_text)
        self.heads = heads
        listed: Any = [layers] if _is_number(layers) else () if layers is None else layers
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
            return LayerEdit(layer, {head: self.values[layer, head] for head in heads})
        return LayerEdit(layer, {}, self.edges.find, None if self.heads is None else heads)

    def check_done(self, count: int) -> None:
        """Raise ValueError where something that was named did not run."""
        if missing := {layer for layer in self.named_layers if layer >= count}:
            exist = "layer 0 only" if count == 1 else f"layers 0 to {count - 1}"
            raise ValueError(f"layer {min(missing)} was to be cut, and the model attended in {exist} inside the block")
        if self.edges is not None:
            self.edges.check_met()


def _check_named(heads: object, edges: object, layers: object, to: To) -> None:
    if heads is None and edges is None:
        raise ValueError("nothing is named to be cut; give heads, (layer, head), or edges=[(query, key)]")
    if edges is None and layers is not None:
        raise ValueError("layers are those in which edges are cut; give edges, or heads as (layer, head)")
    if edges is not None and heads is not None and layers is not None:
        raise ValueError("heads say in which layers edges are cut; leave layers out, or heads")
    if edges is not None and not _is_zero(to):
        raise ValueError("to= is what a head hands over; edges are removed, so leave it out, or cut the head")


def _is_zero(to: object) -> bool:
    return isinstance(to, (int, float)) and to == 0


def head_numbers(heads: Heads | None) -> list[HeadNumber] | None:
    """(layer, head) of each head that is named."""
    if heads is None:
        return None
    if isinstance(heads, str):
        raise ValueError(f"a head is (layer, head) and this is {heads!r}; give numbers: (4, 3)")
    if isinstance(heads, Head) or (isinstance(heads, tuple) and len(heads) == 2 and _is_number(heads[0])):
        return [_head(heads)]
    return list(dict.fromkeys(_head(head) for head in heads))


def _head(head: Any) -> HeadNumber:
    if isinstance(head, Head):
        return head.layer, head.head
    if not isinstance(head, Sequence) or isinstance(head, str) or len(head) != 2:
        raise ValueError(f"a head is (layer, head) and this is {head!r}; several are a list: [(0, 2), (4, 3)]")
    return _number(head[0], "layer"), _number(head[1], "head")


def _number(value: Any, what: str) -> int:
    if not _is_number(value) or index(value) < 0:
        raise ValueError(f"{what} {value!r} must be a whole number from 0; {what}s are numbered as in regard.watch")
    return index(value)


def _is_number(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, (bool, Tensor))


def _checked_edges(edges: Sequence[tuple[Token, Token]]) -> list[tuple[Token, Token]]:
    if isinstance(edges, str):
        raise ValueError(f"edges are (query, key) pairs and this is {edges!r}; give a list: [('sat', 'cat')]")
    checked = []
    for edge in edges:
        if isinstance(edge, str) or not isinstance(edge, Sequence) or len(edge) != 2:
            raise ValueError(f"an edge is (query, key) and this is {edge!r}; give a list of pairs: [('sat', 'cat')]")
        query, key = (token if isinstance(token, str) else _position(token, edge) for token in edge)
        checked.append((query, key))
    return checked


def _position(token: Any, edge: Any) -> int:
    if not _is_number(token) or index(token) < 0:
        raise ValueError(f"edge {tuple(edge)!r} has {token!r}; tokens are words, or positions from 0")
    return index(token)


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
