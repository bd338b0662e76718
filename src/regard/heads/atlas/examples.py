"""Examples: rows of a head from its whole distribution, chosen by a number that is random but fixed for each token.

A head keeps rows in groups: 20 by the largest weight of the row, a sample of all rows, and the strongest ones. A group
keeps the rows with the smallest keys: the token's random number, or for the strongest first its weight. So it does not
matter in which order rows arrive, in which batches, or where a run was interrupted, and two samples are joined exactly.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.heads.atlas.cells import RowTokens
from regard.heads.report.record import Record
from regard.heads.report.texts import texts_of
from regard.support.tokens import TextTokens, printable_token

STRENGTHS, UNIFORM, STRONGEST = 20, 20, 21  # groups: by strength 0 to 19, a sample of all rows, the strongest
KEPT = (*[4] * STRENGTHS, 8, 8)  # rows of each group
GROUPS = len(KEPT)
KEYS = 8  # keys of a row
BEFORE, AFTER, BESIDE = 12, 3, 1  # tokens around the row's own, and around each of its keys, that are kept as text
EXCERPT = BEFORE + 1 + AFTER + KEYS * (1 + 2 * BESIDE)  # the most tokens of an example
_FEW, _SHOWN = 0.01, 0.1  # keys with less weight are left out, and are not marked
_FULL = (1 << 63) - 1
_GRID = 10_000  # strengths are ordered to four decimals: the same row in another batch may differ in the last bits


class ExcerptToken(NamedTuple):
    """A token of an example, as TextTokens has it."""

    text: str
    continues: bool
    part: str = ""


@dataclass(frozen=True)
class ExampleRow:
    """One row of a head: where it stands, what is around it, and where it looks.

    text: a number that stands for its text; equal texts have the same. token: its position. strength: its largest
    weight. keys, weights: the positions and weights of its largest keys, at most 8 of at least 0.01. pieces: tokens of
    the text, by position: those around the row's own and around its keys.
    """

    text: int
    token: int
    strength: float
    keys: tuple[int, ...]
    weights: tuple[float, ...]
    pieces: dict[int, ExcerptToken]

    @property
    def word(self) -> str:
        """The token, as a label."""
        return self.name(self.token)

    def name(self, position: int) -> str:
        """The label of a token of the excerpt: its text, with its position."""
        if position not in self.pieces:
            return f"@{position}"
        piece = self.pieces[position]
        parts = {0: piece.part} if piece.part else {}
        return f"{TextTokens([piece.text], parts=parts).names[0]}@{position}"

    def __str__(self) -> str:
        """The excerpt: the row's token in «», those that it looks at in [], gaps as ….

        >>> pieces = {0: ExcerptToken("The", False), 1: ExcerptToken(" cat", False), 5: ExcerptToken(" sat", False)}
        >>> print(ExampleRow(7, 5, 0.9, (1,), (0.9,), pieces))
        The [cat] … «sat»
        """
        words, last = [], -1
        looked_at = {key for key, weight in zip(self.keys, self.weights, strict=True) if weight >= _SHOWN}
        near = range(self.token - BEFORE, self.token + AFTER + 1)
        for at, piece in sorted(self.pieces.items()):
            if at not in near and not any(abs(at - key) <= BESIDE for key in looked_at):
                continue
            gap = " …" if at != last + 1 else ""
            space = " " if gap or piece.text[:1].isspace() else ""
            marks = "«»" if at == self.token else "[]" if at in looked_at else ("", "")
            words.append(f"{gap}{space}{marks[0]}{piece.part or printable_token(piece.text)}{marks[1]}")
            last = at
        return "".join(words).strip()


Kept = tuple[int, ExampleRow]  # its key in its group, and the row


class Samples:
    """The examples of the heads of one layer: in each group of each head, the rows with the smallest keys."""

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self.groups: dict[tuple[int, int], list[Kept]] = {}  # by head and group, in order

    def put(self, head: int, group: int, key: int, example: ExampleRow) -> None:
        """Keep a row if its key is small enough."""
        rows = self.groups.setdefault((head, group), [])
        if not any(one[0] == key and (one[1].text, one[1].token) == (example.text, example.token) for one in rows):
            insort(rows, (key, example), key=lambda one: one[0])
            del rows[KEPT[group] :]

    def limits(self) -> Tensor:
        """(H, groups): keys from which on a row is not kept."""
        limits = torch.full((self.heads, GROUPS), _FULL)
        for (head, group), rows in self.groups.items():
            if len(rows) == KEPT[group]:
                limits[head, group] = rows[-1][0]
        return limits

    def __add__(self, other: Samples) -> Samples:
        total = Samples(self.heads)
        for one in (self, other):
            for (head, group), rows in one.groups.items():
                for key, example in rows:
                    total.put(head, group, key, example)
        return total

    def of(self, head: int, group: int) -> list[ExampleRow]:
        """The rows of a group of a head."""
        return [example for _, example in self.groups.get((head, group), [])]


def add_examples(samples: Samples, record: Record, tokens: RowTokens) -> None:
    """Choose rows of one layer of one forward, compute the weights of those, and keep them.

    Rows that see one key only, or whose tokens are unknown, are no examples; nor are those of cross-attention.
    """
    B, _H, T, S = record.sizes
    plain = record.attends_to_itself and record.kept and record.has("largest") and T == S
    if tokens.numbers is None or tokens.keys is None or not plain or not B * T:
        return
    largest = record.read("largest").detach()
    may_choose = (record.visible()[0] > 1) & ~largest.isnan()  # NaN is not more than 1
    group, head, text, row, key = _chosen(largest, may_choose, tokens.numbers, samples.limits().to(largest.device))
    made: dict[tuple[int, int, int], ExampleRow] = {}
    heads_and_texts = torch.stack([head, text], 1).unique(dim=0).tolist()
    for h, b in heads_and_texts:
        rows = row[(head == h) & (text == b)].unique()
        for at, example in _examples(record, tokens, h, b, rows, largest[b, h]):
            made[h, b, at] = example
    for g, h, b, t, one in zip(*(x.tolist() for x in (group, head, text, row, key)), strict=True):
        samples.put(h, g, one, made[h, b, t])


def _chosen(largest: Tensor, may_choose: Tensor, numbers: Tensor, limits: Tensor) -> Sequence[Tensor]:
    """Group, head, text, row and key of the rows of a batch that are kept, on the CPU; limits: (H, groups)."""
    strength = largest.double().clamp(0, 1)
    by_strength = (strength * STRENGTHS).nan_to_num(0.0).long().clamp(max=STRENGTHS - 1)
    weakness = _GRID - (strength * _GRID).round().nan_to_num(0.0).long()
    wide = numbers[:, None].expand_as(largest)
    constant = torch.zeros_like(by_strength)
    found = []
    for group, key in (
        (by_strength, wide),
        (constant + UNIFORM, wide),
        (constant + STRONGEST, (weakness << 48) | (wide >> 15)),
    ):
        own = limits.expand(len(largest), -1, -1).gather(2, group)
        text, head, row = (may_choose & (key < own)).nonzero(as_tuple=True)
        found.append([group[text, head, row], head, text, row, key[text, head, row]])
    each = [torch.cat(parts).cpu() for parts in zip(*found, strict=True)]
    order = each[4].argsort(stable=True)
    place = (each[1] * GROUPS + each[0])[order]
    order = order[place.argsort(stable=True)]
    place = (each[1] * GROUPS + each[0])[order]
    first = torch.searchsorted(place, place)  # where its head and group begin
    few = torch.arange(len(place)) - first < torch.tensor(KEPT)[each[0][order]]
    return [one[order[few]] for one in each]


def _examples(
    record: Record, tokens: RowTokens, head: int, text: int, rows: Tensor, strengths: Tensor
) -> list[tuple[int, ExampleRow]]:
    """The chosen rows of one head in one text, by row."""
    assert tokens.keys is not None
    S = record.sizes[3]
    first = int((tokens.at[text] < 0).sum())  # padding in front of the text
    own = texts_of(record).keys
    device = strengths.device
    weights = record.weights(head, rows.to(device), torch.arange(S, device=device), text)[0]
    best, places = weights.topk(min(KEYS, S), dim=-1)
    result = []
    for row, some, at in zip(rows.tolist(), best.tolist(), places.tolist(), strict=True):
        pairs = [(place - first, weight) for place, weight in zip(at, some, strict=True) if weight >= _FEW]
        keys, shares = tuple(place for place, _ in pairs), tuple(weight for _, weight in pairs)
        pieces = {} if own is None else _excerpt(own[text], first, row - first, keys)
        strength = float(strengths[row])
        result.append((row, ExampleRow(int(tokens.keys[text]), row - first, strength, keys, shares, pieces)))
    return result


def _excerpt(text: TextTokens, first: int, token: int, keys: Sequence[int]) -> dict[int, ExcerptToken]:
    """The tokens around this one and around these keys, without padding."""
    wanted = set(range(token - BEFORE, token + AFTER + 1))
    for key in keys:
        wanted |= set(range(key - BESIDE, key + BESIDE + 1))
    inside = [at for at in sorted(wanted) if 0 <= at < len(text) - first and not text.padding[at + first]]
    return {
        at: ExcerptToken(text.pieces[at + first], text.continues[at + first], text.parts.get(at + first, ""))
        for at in inside
    }
