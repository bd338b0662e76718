"""Which queries and keys a cut concerns: edges and positions, given as numbers or as words, found in each call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from operator import index
from typing import Any

import torch
from torch import Tensor

from regard.heads.calls.call import TextIds, WatchedCall
from regard.heads.calls.edits import Positions
from regard.heads.calls.visibility import visible_tile
from regard.heads.inputs.pieces import TextReader
from regard.heads.report.texts import read_texts, span_of
from regard.support.tokens import TextTokens

Token = int | str
Edges = Sequence[tuple[Token, Token]] | None
Pair = tuple[int | None, int, int]  # (text, query, key); text None: all texts


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
        return _texts(self.reader, call, "edges name")


def _places(token: Token, texts: Sequence[TextTokens], text: int) -> Sequence[int]:
    """The positions of a token; a word may be several tokens."""
    return span_of(token, texts, text) if isinstance(token, str) else [token]


def _can_see(call: WatchedCall, text: int | None, row: int, col: int) -> bool:
    """May the query see the key, in any head?"""
    tile = visible_tile(call, torch.tensor([row], device=call.device))
    tile = tile if text is None or tile.shape[0] == 1 else tile[text : text + 1]
    return bool(tile[..., col].any())


class CutRows:
    """Queries at which heads hand over something else, and which of them were there."""

    def __init__(self, positions: Token | Sequence[Token], reader: TextReader | None) -> None:
        listed: list[Any] = [positions] if isinstance(positions, (str, int)) else list(positions)
        if not listed:
            raise ValueError("positions is empty; name at least one, or leave it out")
        if wrong := [one for one in listed if not isinstance(one, str) and (not is_number(one) or index(one) < 0)]:
            raise ValueError(f"positions has {wrong[0]!r}; tokens are words, or positions from 0")
        self.tokens, self.reader = listed, reader
        self.met: set[Token] = set()
        self.length = 0  # the most queries that a text had

    def find(self, call: WatchedCall, positions: Positions) -> Tensor:
        """(B, T) bool: the queries of this call that are meant."""
        B, _, T, _ = call.sizes
        self.length = max(self.length, positions.query + T)
        chosen = torch.zeros(B, T, dtype=torch.bool)
        has_words = any(isinstance(token, str) for token in self.tokens)
        texts = _texts(self.reader, call, "positions name")[0] if has_words else []
        for token, text in product(self.tokens, range(B)):
            for at in _places(token, texts, text):
                if 0 <= at - positions.query < T:
                    chosen[text, at - positions.query] = True
                    self.met.add(token)
        return chosen

    def check_met(self) -> None:
        """Raise ValueError where a position was never there."""
        for token in self.tokens:
            if token not in self.met:
                raise ValueError(
                    f"position {token!r} was not there: the layers concerned had {self.length} queries; positions "
                    "count from 0"
                )


def _texts(reader: TextReader | None, call: WatchedCall, who: str) -> tuple[list[TextTokens], list[TextTokens]]:
    """The tokens of queries and keys, for each text; who: "edges name", for the errors."""
    if reader is None:
        raise ValueError(
            f"{who} words, and no tokenizer is known to read the token ids; give it: cut(…, tokenizer=…), or use "
            "positions"
        )
    origin = call.origin
    queries, keys = origin.query_text, origin.key_text
    if not origin.across:
        queries = keys = None if origin.tokens is None else TextIds(origin.tokens, origin.real)
    if queries is None or keys is None:
        raise ValueError(f"{who} words, and the model was not called with token ids that can be seen; use positions")
    return read_texts(reader, queries.ids, origin.real), read_texts(reader, *keys)


def checked_edges(edges: Sequence[tuple[Token, Token]]) -> list[tuple[Token, Token]]:
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
    if not is_number(token) or index(token) < 0:
        raise ValueError(f"edge {tuple(edge)!r} has {token!r}; tokens are words, or positions from 0")
    return index(token)


def is_number(value: Any) -> bool:
    """Is this a whole number, and no bool?"""
    return hasattr(value, "__index__") and not isinstance(value, (bool, Tensor))
