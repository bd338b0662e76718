"""Which token a row is: its class, its position, and a number that is random but always the same for that token.

The number is a hash of the whole text and of the position in it. So a sample of rows with the smallest numbers does not
depend on the order of the texts, on batches, or on where a run was interrupted. Equal texts have equal numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from regard.heads.inputs.pieces import TextReader
from regard.heads.report.record import Record
from regard.heads.report.texts import texts_of
from regard.support.tokens import TextTokens

CLASSES = ("first of a word", "inside a word", "punctuation", "digits", "space", "special")
_LAST_BIN = 19  # positions from 2¹⁸ on
POSITIONS = ("0", "1", *(f"{1 << n}–{(2 << n) - 1}" for n in range(1, _LAST_BIN - 1)), f"{1 << (_LAST_BIN - 1)}–")
CELLS = len(CLASSES) + len(POSITIONS)
_MIX = (-4658895280553007687, -7723592293110705685)  # of splitmix64, as signed numbers
_GOLDEN = -7046029254386353131


@dataclass(frozen=True)
class RowTokens:
    """The tokens that the rows of a batch stand at.

    at: (B, T), positions counted from the first real token of each text. cells: (B, T, n) float64, 1 in the column of a
    row's class and in that of its position; the columns are CLASSES, then as many of POSITIONS as occur.
    numbers: (B, T), the random numbers, at least 0; keys: (B,), one for each text. None where token ids are unknown.
    """

    at: Tensor
    cells: Tensor
    numbers: Tensor | None
    keys: Tensor | None
    texts: Sequence[TextTokens] | None


def row_tokens(record: Record, reader: TextReader | None) -> RowTokens:
    """Those of the rows of this record."""
    B, _, T, _ = record.sizes
    real, ids = record.real().cpu(), query_ids(record)
    at = real.long().cumsum(1) - 1
    columns = int(position_bin(at.max()) if at.numel() else 0) + 1
    cells = torch.zeros(B, T, len(CLASSES) + columns, dtype=torch.float64)
    cells.scatter_(2, position_bin(at.clamp(min=0))[..., None] + len(CLASSES), 1.0)
    texts = texts_of(record).queries if reader is not None and ids is not None else None
    if texts is not None and ids is not None and reader is not None:
        special = reader.special
        kinds = [
            [_class_of(piece, more, one in special or part) for piece, more, one, part in _tokens(text, row)]
            for text, row in zip(texts, ids.tolist(), strict=True)
        ]
        cells.scatter_(2, torch.tensor(kinds).reshape(B, T, 1), 1.0)
    cells *= real[..., None]
    device = record.steps[0].call.device
    if ids is None:
        return RowTokens(at, cells.to(device), None, None, texts)
    keys = mix((mix(ids.long() * _GOLDEN + at) * real).sum(1))
    numbers = mix(keys[:, None] + (at + 1) * _GOLDEN) & ((1 << 63) - 1)
    return RowTokens(at, cells.to(device), numbers.to(device), keys, texts)


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


def _tokens(text: TextTokens, ids: Sequence[int]) -> list[tuple[str, bool, int, bool]]:
    """ExcerptToken, whether it continues a word, id, and whether it is padding, of each token."""
    return list(zip(text.pieces, text.continues, ids, text.padding, strict=True))


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
