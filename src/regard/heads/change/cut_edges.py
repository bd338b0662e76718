"""The edges of a cut: pairs of query and key, by position or by word, found in every call that has them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from regard.heads.calls.call import WatchedCall
from regard.heads.calls.edits import Positions
from regard.heads.calls.visibility import visible_tile
from regard.heads.inputs.pieces import TextReader
from regard.heads.report.texts import read_texts, span_of
from regard.support.tokens import TextTokens

Token = int | str
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
            pairs = self._look_up(call)
            self._found[call.origin.across] = B, pairs
        return pairs

    def _look_up(self, call: WatchedCall) -> list[list[Pair]]:
        queries, keys = self._texts(call)
        return [
            [
                (text, query, key)
                for text in range(call.sizes[0])
                for query, key in product(_places(edge[0], queries, text), _places(edge[1], keys, text))
            ]
            for edge in self.edges
        ]

    def _texts(self, call: WatchedCall) -> tuple[list[TextTokens], list[TextTokens]]:
        """The tokens of queries and keys, for each text."""
        if self.reader is None:
            raise ValueError(
                "edges name words, and no tokenizer is known to read the token ids; give it: cut(…, tokenizer=…), or "
                "use positions"
            )
        if not call.origin.across:
            texts = _read(self.reader, call.origin.tokens, call.origin.real)
            return texts, texts
        query_text, key_text = call.origin.query_text, call.origin.key_text
        queries = _read(self.reader, None if query_text is None else query_text.ids, call.origin.real)
        keys = _read(self.reader, *((None, None) if key_text is None else key_text))
        return queries, keys


def _read(reader: TextReader, ids: Tensor | None, real: Tensor | None) -> list[TextTokens]:
    if ids is None:
        raise ValueError(
            "edges name words, and the model was not called with token ids that can be seen; use positions"
        )
    return read_texts(reader, ids, real)


def _places(token: Token, texts: Sequence[TextTokens], text: int) -> Sequence[int]:
    """The positions of a token; a word may be several tokens."""
    return span_of(token, texts, text) if isinstance(token, str) else [token]


def _can_see(call: WatchedCall, text: int | None, row: int, col: int) -> bool:
    """May the query see the key, in any head?"""
    tile = visible_tile(call, torch.tensor([row], device=call.device))
    tile = tile if text is None or tile.shape[0] == 1 else tile[text : text + 1]
    return bool(tile[..., col].any())
