"""Examples: rows of a head from its whole distribution, chosen by a number that is random but fixed for each token.

A head keeps rows in groups: 20 by the largest weight of the row, a sample of all rows, and the strongest ones. A group
keeps the rows with the smallest keys: the token's random number, or for the strongest first its weight. So it does not
matter in which order rows arrive, in which batches, or where a run was interrupted, and two samples are joined exactly.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import NamedTuple

from regard.support.tokens import TextTokens, printable_token

STRENGTHS, UNIFORM, STRONGEST = 20, 20, 21  # groups: by strength 0 to 19, a sample of all rows, the strongest
KEPT = (*[4] * STRENGTHS, 8, 8)  # rows of each group
GROUPS = len(KEPT)
KEYS = 8  # keys of a row
BEFORE, AFTER, BESIDE = 12, 3, 1  # tokens around the row's own, and around each of its keys, that are kept as text
EXCERPT = BEFORE + 1 + AFTER + KEYS * (1 + 2 * BESIDE)  # the most tokens of an example
FEW, _SHOWN = 0.01, 0.1  # keys with less weight are left out, and are not marked


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
