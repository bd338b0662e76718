r"""Tokens: the tokens of a text as people read them, and ask for them.

A label is one line, different for every token: ` cat` is cat, a piece that continues a word is ##ice, a line break is
⏎, and a label that occurs more than once has its position behind it: the@4. A character that is split over several
tokens is shown in each, with the number of the byte: 猫:1, 猫:2, 猫:3. Padding is [pad].
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import overload

PADDING = "[pad]"
_ZWJ, _SELECTORS, _SKIN_TONES = "\u200d", "\ufe0e\ufe0f", range(0x1F3FB, 0x1F400)  # what continues an emoji
_JOINERS = f"\u200c{_ZWJ}{_SELECTORS}"  # invisible, but part of words (Persian) and of emoji
# A character and some of its bytes, as in a name: 猫:2-3, \u200d:1.
_PART = re.compile(r"(\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|\\x[0-9a-f]{2}|[^\x00-\x7f]):([1-4])(?:-([1-4]))?", re.DOTALL)
# Scripts that are written without spaces, so that a letter beside another says nothing about words.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


class TextTokens(Sequence[str]):
    r"""The tokens of one text, each as its own text with the spaces around it.

    >>> tokens = TextTokens(["The", " cat", " saw", " the", " cat", "nip"])
    >>> tokens.labels
    ['The', 'cat@1', 'saw', 'the', 'cat@4', '##nip']
    >>> tokens.words
    [0, 1, 2, 3, 4, 4]
    >>> tokens.find("saw"), tokens.find("cat@4"), tokens.span("catnip")
    (2, 4, range(4, 6))

    continues: which tokens continue the word before them. By default, those that follow a letter or digit without a
        space and begin with one, except in scripts without spaces.
    padding: which tokens are padding. They are [pad], and are not found by name.
    parts: names of tokens that are bytes of a character, by position: {3: "猫:1", 4: "猫:2-3"}. The piece of the first
        of them has the character, the others have none.
    """

    def __init__(
        self,
        pieces: Iterable[str],
        continues: Sequence[bool] | None = None,
        padding: Sequence[bool] | None = None,
        parts: Mapping[int, str] | None = None,
    ) -> None:
        self.pieces = tuple(pieces)
        self.parts = dict(parts or {})
        if continues is None:
            continues = [i > 0 and joins(self.pieces[i - 1], piece) for i, piece in enumerate(self.pieces)]
        padding = [False] * len(self.pieces) if padding is None else padding
        for name, values in (("continues", continues), ("padding", padding)):
            if len(values) != len(self.pieces):
                raise ValueError(f"{len(self.pieces)} tokens need as many values of {name}; these are {len(values)}")
        self.padding = tuple(map(bool, padding))
        near_padding = [any(self.padding[max(i - 1, 0) : i + 1]) for i in range(len(self.pieces))]
        self.continues = tuple(bool(one) and not near for one, near in zip(continues, near_padding, strict=True))

    @property
    def words(self) -> list[int]:
        """The number of the word that each token belongs to."""
        numbers: list[int] = []
        for continues in self.continues:
            numbers.append(numbers[-1] + (not continues) if numbers else 0)
        return numbers

    @cached_property
    def names(self) -> list[str]:
        """The tokens on one line each, not told apart: the token ` the` is the, wherever it stands."""
        names = [f"{'##' * one}{printable_token(p)}" for p, one in zip(self.pieces, self.continues, strict=True)]
        return [PADDING if self.padding[i] else self.parts.get(i) or name for i, name in enumerate(names)]

    @cached_property
    def labels(self) -> list[str]:
        """The names, with the position behind those that occur more than once."""
        labels = self.names
        for _ in range(2):  # twice, because a token may be spelled as the label of another
            count = Counter(labels)
            labels = [f"{label}@{i}" if count[label] > 1 else label for i, label in enumerate(labels)]
        return labels

    @cached_property
    def descriptions(self) -> dict[int, str]:
        """In words, the tokens that are bytes of a character, by position."""
        return {i: describe_part(name) for i, name in self.parts.items() if not self.padding[i]}

    def find(self, label: str) -> int:
        """The position of the token with this label or name; @4 is the token at position 4.

        >>> TextTokens(["a", " b", " b"]).find("b")
        Traceback (most recent call last):
        ValueError: 'b' occurs 2 times; choose one: b@1 or b@2
        """
        if (place := self._token(label)) is not None:
            return place
        word = self.span(label)
        choices = _choices([self.labels[i] for i in word])
        raise ValueError(f"{label!r} is {len(word)} tokens; choose one: {choices}")

    def span(self, label: str) -> range:
        """The positions of the token with this label, or of all tokens of the word.

        >>> tokens = TextTokens(["Al", "ice", " saw", " Al", "ice"])
        >>> tokens.span("saw"), tokens.span("Alice@3")
        (range(2, 3), range(3, 5))
        >>> tokens.span("Alice")
        Traceback (most recent call last):
        ValueError: 'Alice' occurs 2 times; choose one: Alice@0 or Alice@3
        """
        if (place := self._token(label)) is not None:
            return range(place, place + 1)
        plain, words = label.strip(), self._long_words()
        matching = [span for span, text in words if plain == text]
        at = [span for span, text in words if plain == f"{text}@{span.start}"]
        if len(matching or at) == 1:
            return (matching or at)[0]
        if matching:
            raise ValueError(_ambiguous(label, [f"{plain}@{span.start}" for span in matching]))
        known = [label for label, padding in zip(self.labels, self.padding, strict=True) if not padding]
        folded = {name.lower(): name for name in reversed([*known, *(text for _, text in words)])}
        near = [folded[name] for name in difflib.get_close_matches(plain.lower(), folded, n=3, cutoff=0.7)]
        more = f", … ({len(known)} in all)" if len(known) > 12 else ""
        there = f"nearest is {_choices(near)}" if near else f"this text has {', '.join(known[:12])}{more}"
        raise ValueError(f"no token is called {label!r}; {there}")

    def marks(self) -> list[str]:
        """What the marks in these labels mean, one line for each mark that occurs.

        >>> TextTokens(["Al", "ice", " saw", " Al", "ice"]).marks()
        ['##ice@1 continues the word before it', 'Al@0 is at position 0, because Al occurs several times']
        """
        first: dict[int, str] = {}
        for i, (name, label, piece) in enumerate(zip(self.names, self.labels, self.pieces, strict=True)):
            if self.padding[i]:
                first.setdefault(0, f"{PADDING} is padding")
            elif i in self.parts:
                first.setdefault(1, f"{label} is {self.descriptions[i]}")
            elif self.continues[i]:
                first.setdefault(2, f"{label} continues the word before it")
            elif label != name:
                first.setdefault(3, f"{label} is at position {i}, because {name} occurs several times")
            elif "⏎" in name and "⏎" not in piece:
                first.setdefault(4, "⏎ is a line break")
        return [line for _, line in sorted(first.items())]

    def _token(self, label: str) -> int | None:
        """The position of the only token with this label, name or text; None where there is none."""
        plain = label.strip()
        text = [i for i, padding in enumerate(self.padding) if not padding]
        if label in self.labels:
            places = [self.labels.index(label)]
        else:
            places = [i for i in text if self.names[i] == label] or [
                i for i in text if i not in self.parts and self.pieces[i].strip() == plain != ""
            ]
        if len(places) > 1:
            raise ValueError(_ambiguous(label, [self.labels[i] for i in places]))
        if not places and plain[:1] == "@" and plain[1:].isdecimal() and int(plain[1:]) < len(self):
            places = [int(plain[1:])]
        if places and self.padding[places[0]]:
            raise ValueError(f"the token at position {places[0]} is padding, which is not asked for by name")
        return places[0] if places else None

    def _long_words(self) -> list[tuple[range, str]]:
        """The words of several tokens, and the text of each."""
        starts = [i for i, continues in enumerate(self.continues) if not continues or i == 0]
        spans = [range(start, end) for start, end in zip(starts, [*starts[1:], len(self)], strict=True)]
        return [(span, "".join(self.pieces[i] for i in span).strip()) for span in spans if len(span) > 1]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self.pieces[index]

    def __contains__(self, label: object) -> bool:
        """Is there a token or a word with this text, name or label?

        >>> tokens = TextTokens(["Al", "ice", " saw", " a", " cat", " and", " a", " dog"])
        >>> "saw" in tokens, "Alice" in tokens, "a" in tokens, "a@6" in tokens, "og" in tokens
        (True, True, True, True, False)
        """
        words = [text for _, text in self._long_words()]
        return any(label in names for names in (self.pieces, self.names, self.labels, words))

    def __len__(self) -> int:
        return len(self.pieces)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TextTokens):
            mine, theirs = ((one.pieces, one.continues, one.padding, one.parts) for one in (self, other))
            return mine == theirs
        return list(self.pieces) == other

    def __hash__(self) -> int:
        return hash(self.pieces)

    def __repr__(self) -> str:
        return f"TextTokens({list(self.pieces)!r})"


def printable_token(piece: str) -> str:
    r"""A token on one line: spaces around it are left out unless there is nothing else; control characters are escaped.

    >>> printable_token(" cat"), printable_token("\n"), printable_token(""), print(printable_token("\x1b[2J"))
    \x1b[2J
    ('cat', '⏎', '∅', None)
    """
    plain = piece.strip() or piece.replace("\r\n", "⏎").replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    visible = _JOINERS if plain.strip(_JOINERS) else ""
    shown = (c if c.isprintable() or c in visible else c.encode("unicode_escape").decode("ascii") for c in plain)
    return "".join(shown) or "∅"


def joins(before: str, piece: str) -> bool:
    """Is the second text part of the word, or of the emoji, that the first ends with?

    >>> joins(" cat", "nip"), joins(" cat", " nip"), joins(" cat", "!"), joins("黑", "猫"), joins("👩", "\u200d")
    (True, False, False, False, True)
    """
    last, first = before[-1:], piece[:1]
    if _continues_emoji(last, first):
        return True
    if not (_in_word(last) and _in_word(first)):
        return False
    is_unspaced = any(unicodedata.name(character, "").startswith(_UNSPACED) for character in (last, first))
    return unicodedata.category(first)[0] == "M" or not is_unspaced


def describe_part(name: str) -> str:
    """In words, the name of a token that has bytes of a character.

    >>> describe_part("猫:2"), describe_part("a猫:1-2")
    ('byte 2 of 3 of 猫', 'a and bytes 1-2 of 3 of 猫')
    """
    texts, end = [], 0
    for part in _PART.finditer(name):
        shown, first, last = part.groups()
        size = len(shown.encode().decode("unicode_escape").encode() if shown[0] == "\\" else shown.encode())
        count = f"byte {first}" if last is None else f"bytes {first}-{last}"
        texts += [name[end : part.start()], f"{count} of {size} of {shown}"]
        end = part.end()
    return " and ".join(filter(None, [*texts, name[end:]]))


def is_part(name: str) -> bool:
    r"""Can it be the name of a token that has bytes of characters, such as 猫:2, on one line and printable?

    >>> is_part("猫:2-3"), is_part("\x1b[2J猫:1"), is_part(r"\ud800:1")
    (True, False, False)
    """
    try:
        return bool(describe_part(name)) and printable_token(name) == name
    except UnicodeError:  # no such character
        return False


def byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet of bytes, which byte-level vocabularies are spelled in.

    Visible Latin-1 characters stand for themselves, the other bytes for U+0100 and on.
    """
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + n): byte for n, byte in enumerate(hidden)}


def _continues_emoji(last: str, first: str) -> bool:
    """Does a character continue the picture before it? By a joiner, a skin tone or a variation selector."""
    if not last or not first:
        return False
    kind, next_kind = unicodedata.category(last), unicodedata.category(first)
    if kind in ("So", "Sk") or last in _SELECTORS:
        return first == _ZWJ or ord(first) in _SKIN_TONES or next_kind == "Mn"
    return last == _ZWJ and next_kind == "So"


def _in_word(character: str) -> bool:
    return bool(character) and (character in _JOINERS or unicodedata.category(character)[0] in "LNM")


def _ambiguous(label: str, choices: list[str]) -> str:
    few = choices if len(choices) <= 12 else [*choices[:11], f"… {choices[-1]}"]
    return f"{label!r} occurs {len(choices)} times; choose one: {_choices(few)}"


def _choices(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
