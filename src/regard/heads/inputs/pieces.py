"""Pieces: token ids as texts, by any tokenizer: regard's, those of transformers (fast and slow), tokenizers.Tokenizer.

A tokenizer marks in its own way where words begin: Ġ (bytes, as in GPT-2), ▁ (sentencepiece), ## (BERT), </w> (CLIP).
Here every token becomes its bytes, the bytes become characters, and each character goes to the token that it begins
in. A character that is split over several tokens is named in each: 猫:1, 猫:2, 猫:3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from regard.support.tokens import TextTokens, byte_of_character, joins, printable_token

ACCEPTED = (
    "a tokenizer of regard, of transformers or of the package tokenizers; for a model without token ids, give the "
    'words instead: watch(model, tokens=["The", "cat"])'
)
_REMEMBERED = 64  # texts
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # how sentencepiece writes a byte


class Spelling(NamedTuple):
    """One token, as its vocabulary has it."""

    data: bytes
    special: bool = False  # shown by its name, and not part of any word
    continues: bool | None = None  # the word before; None where the characters on both sides decide


Spell = Callable[[Sequence[int]], list[Spelling]]


class TextReader:
    """Reads the ids of a text as its tokens; the texts read last are remembered, as every layer has the same.

    special: the ids that are no part of a text, such as <s>. beginning: the id that stands before a text, if any.
    """

    special: frozenset[int] = frozenset()
    beginning: int | None = None

    def __init__(self) -> None:
        self._remembered: dict[tuple[tuple[int, ...], tuple[bool, ...]], TextTokens] = {}

    def read(self, ids: Sequence[int], padding: Sequence[bool]) -> TextTokens:
        """The tokens of one text; padding says which of them are padding."""
        key = tuple(ids), tuple(padding)
        if key not in self._remembered:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = self._read(ids, padding)
        return self._remembered[key]

    def _read(self, ids: Sequence[int], padding: Sequence[bool]) -> TextTokens:
        raise NotImplementedError


class TokenReader(TextReader):
    """Reads token ids by a tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        inner: Any = tokenizer if hasattr(tokenizer, "id_to_token") else getattr(tokenizer, "backend_tokenizer", None)
        if hasattr(inner, "id_to_token") and hasattr(inner, "get_added_tokens_decoder"):
            added = inner.get_added_tokens_decoder()
            self._names = {i: token.content for i, token in added.items()}
            self.special = frozenset(i for i, token in added.items() if token.special)
            self._spell = _spelling_of(inner)
        elif hasattr(tokenizer, "convert_ids_to_tokens") and hasattr(tokenizer, "convert_tokens_to_string"):
            self._names = {i: str(token) for i, token in getattr(tokenizer, "added_tokens_decoder", {}).items()}
            self.special = frozenset(tokenizer.all_special_ids)
            self._spell = _spelling_by_decoding(tokenizer)
        else:
            raise ValueError(f"tokenizer is a {type(tokenizer).__name__}; give {ACCEPTED}")
        self.beginning: int | None = getattr(tokenizer, "bos_token_id", None)
        if self.beginning is None:
            self.beginning = getattr(tokenizer, "end", None)  # regard's: it stands between documents

    def _read(self, ids: Sequence[int], padding: Sequence[bool]) -> TextTokens:
        spelled: list[Spelling] = []
        for is_added, run in groupby(ids, key=lambda i: i in self._names):
            group = list(run)
            if is_added:
                spelled += [Spelling(self._names[i].encode(), i in self.special) for i in group]
            else:
                spelled += self._spell(group)
        return _joined(spelled, padding)


def reader_of(model: Any, tokenizer: Any) -> TextReader | None:
    """Reads token ids by this tokenizer, or by the model's own, if it has one."""
    if tokenizer is not None:
        return TokenReader(tokenizer)
    own = getattr(model, "tokenizer", None)
    try:
        return None if own is None else TokenReader(own)
    except ValueError:  # the model has something else under this name
        return None


class WordReader(TextReader):
    """Numbers the words of some texts, equal words alike, and reads these ids.

    >>> reader = WordReader([["the", "cat", "the"]])
    >>> reader.ids
    [[0, 1, 0]]
    >>> reader.read([1, 0], padding=[False, False])
    TextTokens(['cat', 'the'])

    Strings are words of their own; where they are pieces of words, the text is a TextTokens.
    """

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        super().__init__()
        numbers: dict[tuple[str, bool], int] = {}
        self.ids = [[numbers.setdefault(word, len(numbers)) for word in _words(text)] for text in texts]
        self._tokens = list(numbers)

    def _read(self, ids: Sequence[int], padding: Sequence[bool]) -> TextTokens:
        tokens = [self._tokens[i] for i in ids]
        return TextTokens([word for word, _ in tokens], [continues for _, continues in tokens], padding)


def _words(text: Sequence[str]) -> list[tuple[str, bool]]:
    """Each token, and whether it continues a word."""
    continues = text.continues if isinstance(text, TextTokens) else [False] * len(text)
    return list(zip(text, continues, strict=True))


def _spelling_of(inner: Any) -> Spell:
    """How a tokenizer of the package tokenizers spells: its decoder says so."""
    decoder, model = repr(inner.decoder), inner.model
    suffix = getattr(model, "end_of_word_suffix", None) or (inner.decoder.suffix if "BPEDecoder" in decoder else None)

    def names(ids: Sequence[int]) -> list[str | None]:
        return [inner.id_to_token(i) if 0 <= i < 1 << 32 else None for i in ids]

    if "ByteLevel" in decoder:
        return lambda ids: _bytes(ids, names(ids), byte_of_character(), suffix)
    if suffix:
        return lambda ids: _bytes(ids, names(ids), {}, suffix)
    if "WordPiece" in decoder:
        return lambda ids: _with_prefix(ids, names(ids), inner.decoder.prefix)
    if "▁" in decoder:
        return lambda ids: _sentencepiece(ids, names(ids))
    if inner.decoder is None:  # every token is a word: decoding puts a space between them
        return lambda ids: [
            _unknown(i) if n is None else Spelling(f" {n}".encode(), False, False)
            for i, n in zip(ids, names(ids), strict=True)
        ]
    return lambda ids: [
        _unknown(i) if n is None else Spelling(n.encode()) for i, n in zip(ids, names(ids), strict=True)
    ]


def _spelling_by_decoding(tokenizer: Any) -> Spell:
    """How a slow tokenizer of transformers spells: by its alphabet of bytes, by ▁, or by what decoding adds."""
    if alphabet := getattr(tokenizer, "byte_decoder", None):
        return lambda ids: _bytes(ids, _names(tokenizer, ids), alphabet, None)
    if hasattr(tokenizer, "sp_model"):
        return lambda ids: _sentencepiece(ids, _names(tokenizer, ids))
    return lambda ids: _by_decoding(tokenizer, _names(tokenizer, ids), ids)


def _names(tokenizer: Any, ids: Sequence[int]) -> list[str | None]:
    return [tokenizer.convert_ids_to_tokens(i) if 0 <= i < len(tokenizer) else None for i in ids]


def _bytes(
    ids: Sequence[int], names: Sequence[str | None], alphabet: dict[str, int], suffix: str | None
) -> list[Spelling]:
    """A character of the alphabet stands for a byte; cat</w> ends a word, so that the next token begins one."""
    spelled, ended = [], True
    for i, name in zip(ids, names, strict=True):
        if name is None:
            spelled.append(_unknown(i))
            continue
        plain = name.removesuffix(suffix) if suffix else name
        data = b"".join(bytes([alphabet[c]]) if c in alphabet else c.encode() for c in plain)
        spelled.append(Spelling((b" " if ended else b"") + data, False, not ended) if suffix else Spelling(data))
        ended = bool(suffix) and name.endswith(suffix or "")
    return spelled


def _sentencepiece(ids: Sequence[int], names: Sequence[str | None]) -> list[Spelling]:
    """▁ is a space; <0xE7> is a byte."""
    spelled = []
    for i, name in zip(ids, names, strict=True):
        byte = _BYTE.fullmatch(name or "")
        data = bytes.fromhex(byte[1]) if byte else (name or "").replace("▁", " ").encode()
        spelled.append(_unknown(i) if name is None else Spelling(data))
    return spelled


def _with_prefix(ids: Sequence[int], names: Sequence[str | None], prefix: str) -> list[Spelling]:
    """##ice continues a word, every other token begins one."""
    return [
        _unknown(i)
        if name is None
        else Spelling(name.removeprefix(prefix).encode(), False, True)
        if name.startswith(prefix) and name != prefix
        else Spelling(f" {name}".encode(), False, False)
        for i, name in zip(ids, names, strict=True)
    ]


def _by_decoding(tokenizer: Any, names: Sequence[str | None], ids: Sequence[int]) -> list[Spelling]:
    """The text that each token adds to that of the one before; a token that adds none waits for the next ones."""
    spelled: list[Spelling] = []
    start, before = 0, ""  # the last token whose text was complete, and its text
    joined = False  # the token before ends with @@: the next continues it
    for at, (i, name) in enumerate(zip(ids, names, strict=True)):
        if name is None:
            spelled.append(_unknown(i))
            start, before, joined = at + 1, "", False
            continue
        if name.endswith("@@") or joined:
            spelled.append(Spelling(((" " if not joined else "") + name.removesuffix("@@")).encode(), False, joined))
            joined = name.endswith("@@")
            start, before = (at + 1, "") if joined else (at, tokenizer.convert_tokens_to_string([name]))
            continue
        text = tokenizer.convert_tokens_to_string(list(names[start : at + 1]))
        new = text[len(before) :] if text.startswith(before) else tokenizer.convert_tokens_to_string([name])
        if not new or "\ufffd" in new:
            spelled.append(Spelling(b""))
            continue
        waiting = [j for j in range(start + bool(before), at) if not spelled[j].data]
        data = new.encode()
        for j in waiting:
            spelled[j], data = Spelling(data[:1]), data[1:]
        spelled.append(Spelling(data))
        start, before = at, tokenizer.convert_tokens_to_string([name]) if not waiting else ""
        start += bool(waiting)
    return spelled


def _unknown(i: int) -> Spelling:
    return Spelling(f"<id {i}>".encode(), special=True)


def _joined(spelled: Sequence[Spelling], padding: Sequence[bool]) -> TextTokens:
    """The tokens of a text from their bytes."""
    pieces, shown = [""] * len(spelled), [""] * len(spelled)
    split: set[int] = set()  # tokens with a part of a character
    alone = [one.special or padded for one, padded in zip(spelled, padding, strict=True)]
    for is_alone, run in groupby(range(len(spelled)), key=lambda i: alone[i]):
        tokens = list(run)
        for group in ([i] for i in tokens) if is_alone else [tokens]:
            for character, owners in _characters([(i, spelled[i].data) for i in group]):
                first, is_split = owners[0], owners[0] != owners[-1]
                pieces[first] += character
                for i in dict.fromkeys(owners):
                    shown[i] += _part(character, i, owners) if is_split else character
                split.update(owners if is_split else ())
                alone[first] = alone[first] or len(character) > 1  # a byte that is no text
    continues = [
        i > 0 and not (alone[i] or alone[i - 1]) and _continues(i, spelled, pieces, split) for i in range(len(spelled))
    ]
    return TextTokens(pieces, continues, padding, {i: printable_token(shown[i]) for i in split})


def _characters(tokens: Sequence[tuple[int, bytes]]) -> Iterator[tuple[str, list[int]]]:
    r"""The characters of some tokens, each with the token of each of its bytes; a byte that is no text is \xe7."""
    owner = [i for i, data in tokens for _ in data]
    at = 0
    for character in b"".join(data for _, data in tokens).decode(errors="surrogateescape"):
        size = len(character.encode(errors="surrogateescape"))
        is_text = not "\udc80" <= character <= "\udcff"
        yield character if is_text else f"\\x{ord(character) - 0xDC00:02x}", owner[at : at + size]
        at += size


def _part(character: str, token: int, owners: Sequence[int]) -> str:
    """The bytes of a character that are in one token: 猫:1, or 猫:2-3."""
    first, last = owners.index(token) + 1, len(owners) - owners[::-1].index(token)
    return f"{printable_token(character)}:{first}" + (f"-{last}" if last > first else "")


def _continues(i: int, spelled: Sequence[Spelling], pieces: Sequence[str], split: set[int]) -> bool:
    told = spelled[i].continues
    if told is not None:
        return told
    if i in split and i - 1 in split and not pieces[i]:
        return True  # inside a character
    before = i - 1
    while before and not pieces[before] and before in split:  # the character is in the piece that it begins in
        before -= 1
    return joins(pieces[before], pieces[i])
