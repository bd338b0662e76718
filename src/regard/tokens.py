r"""Tokens: the tokens of a text as people read them, and ask for them.

A label is one line, different for every token: ` cat` is cat, a piece that continues a word is ##ice, a line break is
⏎, and a label that occurs more than once has its position behind it: the@4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import overload


class TextTokens(Sequence[str]):
    r"""The tokens of one text, each as its own text with the spaces around it.

    >>> tokens = TextTokens(["The", " cat", " saw", " the", " cat", "nip"])
    >>> tokens.labels
    ['The', 'cat@1', 'saw', 'the', 'cat@4', '##nip']
    >>> tokens.words
    [0, 1, 2, 3, 4, 4]
    >>> tokens.find("saw"), tokens.find("cat@4")
    (2, 4)

    continues: which tokens continue the word before them. By default, those that follow a letter or digit without a
        space and begin with one.
    """

    def __init__(self, pieces: Iterable[str], continues: Sequence[bool] | None = None) -> None:
        self.pieces = tuple(pieces)
        if continues is None:
            continues = [i > 0 and _joins(self.pieces[i - 1], piece) for i, piece in enumerate(self.pieces)]
        if len(continues) != len(self.pieces):
            raise ValueError(f"{len(self.pieces)} tokens need as many values of continues; these are {len(continues)}")
        self.continues = tuple(continues)

    @property
    def words(self) -> list[int]:
        """The number of the word that each token belongs to."""
        numbers: list[int] = []
        for continues in self.continues:
            numbers.append(numbers[-1] + (not continues) if numbers else 0)
        return numbers

    @property
    def names(self) -> list[str]:
        """The tokens on one line each, not told apart: the token ` the` is the, wherever it stands."""
        return [
            ("##" if continues else "") + printable(piece)
            for piece, continues in zip(self.pieces, self.continues, strict=True)
        ]

    @property
    def labels(self) -> list[str]:
        """The names, with the position behind those that occur more than once."""
        names = self.names
        count = Counter(names)
        return [f"{name}@{i}" if count[name] > 1 else name for i, name in enumerate(names)]

    def find(self, label: str) -> int:
        """The position of the token with this label or name.

        >>> TextTokens(["a", " b", " b"]).find("b")
        Traceback (most recent call last):
        ValueError: 'b' occurs 2 times; choose one: b@1 or b@2
        """
        labels, names = self.labels, self.names
        if label in labels:
            return labels.index(label)
        places = [i for i, name in enumerate(names) if name == label] or [
            i for i, piece in enumerate(self.pieces) if piece.strip() == label.strip() != ""
        ]
        if len(places) == 1:
            return places[0]
        if places:
            listed = [labels[i] for i in places]
            raise ValueError(
                f"{label!r} occurs {len(places)} times; choose one: {', '.join(listed[:-1])} or {listed[-1]}"
            )
        raise ValueError(f"no token is called {label!r}; this text has {_in_short(labels)}")

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self.pieces[index]

    def __len__(self) -> int:
        return len(self.pieces)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TextTokens):
            return (self.pieces, self.continues) == (other.pieces, other.continues)
        return list(self.pieces) == other

    def __hash__(self) -> int:
        return hash(self.pieces)

    def __repr__(self) -> str:
        return f"TextTokens({list(self.pieces)!r})"


def printable(piece: str) -> str:
    r"""A token on one line: spaces around it are left out unless there is nothing else; control characters are replaced.

    >>> printable(" cat"), printable("\n"), printable("\x1b[2J"), printable("")
    ('cat', '⏎', '�[2J', '∅')
    """
    plain = piece.strip() or piece.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    return "".join(c if c.isprintable() else "�" for c in plain) or "∅"


def _joins(before: str, piece: str) -> bool:
    return before[-1:].isalnum() and piece[:1].isalnum()


def _in_short(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= 12 else f"{', '.join(labels[:12])}, … ({len(labels)} in all)"
