"""Which token a row is: its class, its position, and a number that is random but always the same for that token.

The number is a hash of the whole text and of the position in it. So a sample of rows with the smallest numbers does not
depend on the order of the texts, on batches, or on where a run was interrupted. Equal texts have equal numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import torch
from torch import Tensor

from regard.heads.inputs.pieces import TokenReader
from regard.heads.report.record import Record

CLASSES = ("first of a word", "inside a word", "punctuation", "digits", "space", "special")
_LAST_BIN = 19  # positions from 2¹⁸ on
POSITIONS = ("0", "1", *(f"{1 << n}–{(2 << n) - 1}" for n in range(1, _LAST_BIN - 1)), f"{1 << (_LAST_BIN - 1)}–")
_NEW, _SPLIT = -1, -2  # a token that was not looked at; one that holds a part of a character
_MOST_IDS = 1 << 22  # of larger ids no table is kept
CELLS = len(CLASSES) + len(POSITIONS)
_MIX = (-4658895280553007687, -7723592293110705685)  # of splitmix64, as signed numbers
_GOLDEN = -7046029254386353131


@dataclass(frozen=True)
class RowTokens:
    """The tokens that the rows of a batch stand at.

    at: (B, T), positions counted from the first real token of each text. cells: (B, T, n) float64, 1 in the column of a
    row's class and in that of its position; the columns are CLASSES, then as many of POSITIONS as occur.
    real: (B, T) bool. ids: (B, T); numbers: (B, T), the random numbers, at least 0; keys: (B,), one for each text. None
    where token ids are unknown.
    """

    at: Tensor
    real: Tensor
    ids: Tensor | None
    cells: Tensor
    numbers: Tensor | None
    keys: Tensor | None


def row_tokens(record: Record, classes: TokenClasses | None) -> RowTokens:
    """Those of the rows of this record."""
    B, _, T, _ = record.sizes
    real, ids = record.real().cpu(), query_ids(record)
    at = real.long().cumsum(1) - 1
    columns = int(position_bin(at.max()) if at.numel() else 0) + 1
    cells = torch.zeros(B, T, len(CLASSES) + columns, dtype=torch.float64)
    cells.scatter_(2, position_bin(at.clamp(min=0))[..., None] + len(CLASSES), 1.0)
    if classes is not None and ids is not None:
        cells.scatter_(2, classes.of(ids, real)[..., None], 1.0)
    cells *= real[..., None]
    device = record.steps[0].call.device
    if ids is None:
        return RowTokens(at, real, None, cells.to(device), None, None)
    keys = mix((mix(ids.long() * _GOLDEN + at) * real).sum(1))
    numbers = mix(keys[:, None] + (at + 1) * _GOLDEN) & ((1 << 63) - 1)
    return RowTokens(at, real, ids, cells.to(device), numbers.to(device), keys)


class TokenClasses:
    """The class of each token of a text.

    Of nearly all tokens it follows from the token and the one before: whether they are joined is tried once for each
    pair of edges. Those that hold a part of a character are read together with what is around them.
    """

    def __init__(self, reader: TokenReader) -> None:
        self._reader = reader
        self._of_token = torch.full((1, 4), _NEW)  # its edges; its class where it begins a word, or continues one
        self._edges: dict[object, int] = {}
        self._joined: dict[int, bool] = {}  # by the numbers of two edges
        self._read_runs = lru_cache(maxsize=1 << 16)(self._read)

    def of(self, ids: Tensor, real: Tensor) -> Tensor:
        """(B, T): the numbers of the classes; any number for padding."""
        if not ids.numel():
            return torch.zeros_like(ids)
        if not self._reader.by_neighbours or int(ids.min()) < 0 or int(ids.max()) >= _MOST_IDS:
            rows = zip(ids.tolist(), (~real).tolist(), strict=True)
            return torch.tensor([self._read(tuple(row), tuple(padding)) for row, padding in rows])
        self._learn(ids)
        before = torch.nn.functional.pad(ids[:, :-1], (1, 0))
        follows = torch.nn.functional.pad(real[:, :-1], (1, 0)) & real
        tail, head = self._of_token[before, 0], self._of_token[ids, 1]
        apart = (head == _SPLIT) | (follows & (tail == _SPLIT))
        pairs = follows & ~apart
        joined = torch.zeros_like(pairs)
        joined[pairs] = self._are_joined(tail[pairs] << 32 | head[pairs], before[pairs], ids[pairs])
        result = torch.where(joined, self._of_token[ids, 3], self._of_token[ids, 2])
        for row in (apart & real).any(1).nonzero()[:, 0].tolist():
            self._put_runs(result[row], ids[row].tolist(), follows[row].tolist(), (apart & real)[row].tolist())
        return result

    def _learn(self, ids: Tensor) -> None:
        """Look at the tokens that are new."""
        more = int(ids.max()) + 1 - len(self._of_token)
        self._of_token = torch.nn.functional.pad(self._of_token, (0, 0, 0, max(more, 0)), value=_NEW)
        for token in ids[self._of_token[ids, 0] == _NEW].unique().tolist():
            edges, (piece,) = self._reader.edges(token), self._reader.read([token], [False])
            numbers = [_SPLIT if edge is None else self._number(edge) for edge in edges or (None, None)]
            kinds = [_class_of(piece, continues, token in self._reader.special) for continues in (False, True)]
            self._of_token[token] = torch.tensor([*numbers, *kinds])

    def _number(self, edge: object) -> int:
        return self._edges.setdefault(edge, len(self._edges))

    def _are_joined(self, pairs: Tensor, before: Tensor, ids: Tensor) -> Tensor:
        """Is each token part of the word before it? pairs: the numbers of their edges."""
        unique, place = pairs.unique(return_inverse=True)
        first = torch.empty_like(unique).scatter_(0, place, torch.arange(len(pairs)))
        known = []
        for pair, at in zip(unique.tolist(), first.tolist(), strict=True):
            if pair not in self._joined:
                self._joined[pair] = self._reader.read([int(before[at]), int(ids[at])], [False, False]).continues[1]
            known.append(self._joined[pair])
        return torch.tensor(known, dtype=torch.bool)[place]

    def _put_runs(self, result: Tensor, ids: list[int], follows: list[bool], apart: list[bool]) -> None:
        """The classes of characters that are split over tokens, in one text: a run of them, and the token before it."""
        for is_run, places in groupby(range(len(ids)), key=apart.__getitem__):
            start, *others = list(places) if is_run else [-1]
            if start >= 0:
                first, end = start - follows[start], (others or [start])[-1] + 1
                read = self._read_runs(tuple(ids[first:end]), (False,) * (end - first))
                result[start:end] = torch.tensor(read[start - first :])

    def _read(self, ids: tuple[int, ...], padding: tuple[bool, ...]) -> list[int]:
        text = self._reader.read(ids, padding)
        tokens = zip(text.pieces, text.continues, ids, padding, strict=True)
        return [_class_of(piece, more, one in self._reader.special or pad) for piece, more, one, pad in tokens]


def query_ids(record: Record) -> Tensor | None:
    """(B, T): the token ids of the rows, on the CPU; None where they are unknown."""
    if len(record.steps) != 1:
        return None
    origin, T = record.steps[0].call.origin, record.sizes[2]
    if record.across or origin.tokens is None:
        return None if origin.query_text is None else origin.query_text.ids.cpu()
    ids, places = origin.tokens.cpu(), record.positions()
    return ids[:, places] if not T or int(places.max()) < ids.shape[1] else None


def position_bin(at: Tensor) -> Tensor:
    """0, 1, 2–3, 4–7, … → 0, 1, 2, 3, …

    >>> position_bin(torch.tensor([0, 1, 2, 3, 4, 7, 8, 1 << 40]))
    tensor([ 0,  1,  2,  2,  3,  3,  4, 19])
    """
    return torch.frexp(at.double())[1].long().clamp(max=_LAST_BIN)


def mix(numbers: Tensor) -> Tensor:
    """Other numbers of 64 bits, one for each, that look random."""
    for shift, factor in ((30, _MIX[0]), (27, _MIX[1])):
        numbers = (numbers ^ ((numbers >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return numbers ^ ((numbers >> 31) & ((1 << 33) - 1))


@lru_cache(maxsize=1 << 16)
def _class_of(piece: str, continues: bool, special: bool) -> int:
    r"""The number of a token's class.

    >>> [CLASSES[_class_of(piece, False, False)] for piece in (" cat", ".", " 1990", "\n", "1st")]
    ['first of a word', 'punctuation', 'digits', 'space', 'first of a word']
    """
    plain = piece.strip()
    if special:
        name = "special"
    elif not plain and not continues:
        name = "space"
    elif plain.isnumeric():
        name = "digits"
    elif plain and not any(character.isalnum() for character in plain):
        name = "punctuation"
    else:
        name = "inside a word" if continues else "first of a word"
    return CLASSES.index(name)
