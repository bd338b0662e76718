"""Pieces: token ids as texts, by any tokenizer: regard's, those of transformers (fast and slow), tokenizers.Tokenizer.

A tokenizer marks in its own way where words begin: Ġ (bytes, as in GPT-2), ▁ (sentencepiece), ## (BERT), </w> (CLIP).
Here every token becomes its bytes, the bytes become characters, and each character goes to the token that it begins
in. A character that is split over several tokens is named in each: 猫:1, 猫:2, 猫:3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from regard.support.tokens import TextTokens, byte_of_character, joins, printable_token

ACCEPTED = (
    "a tokenizer of regard, of transformers or of the package tokenizers; for a model without token ids, give the "
    'words instead: watch(model, tokens=["The", "cat"])'
)
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # how sentencepiece writes a byte


class Spelling(NamedTuple):
    """One token, as its vocabulary has it."""

    data: bytes
    special: bool = False  # shown by its name, and not part of any word
    continues: bool | None = None  # the word before; None where the characters on both sides decide


Spell = Callable[[Sequence[str]], list[Spelling]]  # from the names of tokens in a vocabulary


class TextReader:
    """Reads the ids of a text as its tokens; the texts read last are remembered, as every layer has the same.

    special: the ids that are no part of a text, such as <s>. beginning: the id that stands before a text, if any.
    """

    special: frozenset[int] = frozenset()
    beginning: int | None = None

    def __init__(self) -> None:
        self._texts: dict[tuple[tuple[int, ...], tuple[bool, ...]], TextTokens] = {}

    def read(self, ids: Sequence[int], padding: Sequence[bool]) -> TextTokens:
        """The tokens of one text; padding says which of them are padding."""
        key = tuple(ids), tuple(padding)
        if key not in self._texts:
            if len(self._texts) >= 64:
                self._texts.clear()
            self._texts[key] = self._read(*key)
        return self._texts[key]

    def _read(self, ids: Sequence[int], padding: Sequence[bool]) -> TextTokens:
        raise NotImplementedError


class TokenReader(TextReader):
    """Reads token ids by a tokenizer. by_neighbours: what a token is depends on those beside it only."""

    by_neighbours = True

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        inner: Any = tokenizer if hasattr(tokenizer, "id_to_token") else getattr(tokenizer, "backend_tokenizer", None)
        if hasattr(inner, "id_to_token") and hasattr(inner, "get_added_tokens_decoder"):
            added = inner.get_added_tokens_decoder()
            self._added = {i: token.content for i, token in added.items()}
            self.special = frozenset(i for i, token in added.items() if token.special)
            self._name, self._size, self._spell = inner.id_to_token, 1 << 32, _spelling_of(inner)
        elif hasattr(tokenizer, "convert_ids_to_tokens") and hasattr(tokenizer, "convert_tokens_to_string"):
            self._added = {i: str(token) for i, token in getattr(tokenizer, "added_tokens_decoder", {}).items()}
            self.special = frozenset(tokenizer.all_special_ids)
            self._name, self._size = tokenizer.convert_ids_to_tokens, len(tokenizer)
            self._spell = _spelling_of_slow(tokenizer)
            self.by_neighbours = not (isinstance(self._spell, partial) and self._spell.func is _by_decoding)
        else:
            raise ValueError(f"tokenizer is a {type(tokenizer).__name__}; give {ACCEPTED}")
        self.beginning: int | None = getattr(tokenizer, "bos_token_id", None)
        if self.beginning is None:
            self.beginning = getattr(tokenizer, "end", None)  # regard's: it stands between documents

    def edges(self, token: int) -> tuple[object, object] | None:
        """What of a token decides whether the next one continues its word, and whether it continues that before.

        None where more decides: its bytes are part of a character, or decoding looks at all tokens before.
        """
        one, after = self._spelled([token, token])
        if not self.by_neighbours or not _is_text(one.data):
            return None
        text = one.data.decode()
        return (text[-1], one.special, after.continues), (text[0], one.special, one.continues)

    def _read(self, ids: Sequence[int], padding: Sequence[bool]) -> TextTokens:
        return _joined(self._spelled(ids), padding)

    def _spelled(self, ids: Sequence[int]) -> list[Spelling]:
        names = [self._name(i) if 0 <= i < self._size and i not in self._added else None for i in ids]
        spelled: list[Spelling] = []
        for is_named, run in groupby(zip(ids, names, strict=True), key=lambda token: token[1] is not None):
            if is_named:
                spelled += self._spell([str(name) for _, name in run])
            else:
                for i, _ in run:
                    is_special = i in self.special or i not in self._added
                    spelled.append(Spelling(self._added.get(i, f"<id {i}>").encode(), is_special))
        return spelled


def reader_of(model: Any, tokenizer: Any) -> TokenReader | None:
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

    Strings are words of their own; where they are pieces of words, the text is a TextTokens.
    """

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        super().__init__()
        numbers: dict[tuple[str, bool], int] = {}  # each word, and whether it continues another
        self.ids: list[list[int]] = []
        for text in texts:
            continues = text.continues if isinstance(text, TextTokens) else [False] * len(text)
            words = zip(text, continues, strict=True)
            self.ids.append([numbers.setdefault(word, len(numbers)) for word in words])
        self._tokens = list(numbers)

    def _read(self, ids: Sequence[int], padding: Sequence[bool]) -> TextTokens:
        tokens = [self._tokens[i] for i in ids]
        return TextTokens([word for word, _ in tokens], [continues for _, continues in tokens], padding)


def _spelling_of(inner: Any) -> Spell:
    """How a tokenizer of the package tokenizers spells: its decoder says so."""
    decoder = repr(inner.decoder)
    suffix = inner.decoder.suffix if "BPEDecoder" in decoder else ""
    suffix = getattr(inner.model, "end_of_word_suffix", None) or suffix
    if "ByteLevel" in decoder:
        return partial(_bytes, alphabet=byte_of_character(), suffix=suffix)
    if suffix:
        return partial(_bytes, alphabet={}, suffix=suffix)
    if "WordPiece" in decoder:
        return partial(_with_prefix, prefix=inner.decoder.prefix)
    if "▁" in decoder:
        return _sentencepiece
    if inner.decoder is None:  # every token is a word: decoding puts a space between them
        return lambda names: [Spelling(f" {name}".encode(), False, False) for name in names]
    return lambda names: [Spelling(name.encode()) for name in names]


def _spelling_of_slow(tokenizer: Any) -> Spell:
    """How a slow tokenizer of transformers spells: by its alphabet of bytes, by ▁, or by what decoding adds."""
    if alphabet := getattr(tokenizer, "byte_decoder", None):
        return partial(_bytes, alphabet=alphabet, suffix="")
    return _sentencepiece if hasattr(tokenizer, "sp_model") else partial(_by_decoding, tokenizer)


def _bytes(names: Sequence[str], alphabet: dict[str, int], suffix: str) -> list[Spelling]:
    """A character of the alphabet stands for a byte; cat</w> ends a word, so that the next token begins one."""
    spelled, ended = [], True
    for name in names:
        characters = name.removesuffix(suffix)
        data = b"".join(bytes([alphabet[c]]) if c in alphabet else c.encode() for c in characters)
        spelled.append(Spelling((b" " if ended else b"") + data, False, not ended) if suffix else Spelling(data))
        ended = name.endswith(suffix)
    return spelled


def _sentencepiece(names: Sequence[str]) -> list[Spelling]:
    """▁ is a space; <0xE7> is a byte."""
    return [
        Spelling(bytes.fromhex(byte[1]) if (byte := _BYTE.fullmatch(name)) else name.replace("▁", " ").encode())
        for name in names
    ]


def _with_prefix(names: Sequence[str], prefix: str) -> list[Spelling]:
    """##ice continues a word, every other token begins one."""
    continues = [name.startswith(prefix) and name != prefix for name in names]
    texts = [name.removeprefix(prefix) if c else f" {name}" for name, c in zip(names, continues, strict=True)]
    return [Spelling(text.encode(), False, c) for text, c in zip(texts, continues, strict=True)]


def _by_decoding(tokenizer: Any, names: Sequence[str]) -> list[Spelling]:
    """The text that each token adds to that of the one before; a token that adds none waits for the next ones."""
    decode = tokenizer.convert_tokens_to_string
    spelled: list[Spelling] = []
    start, before = 0, ""  # the last token whose text was complete, and its text
    joined = False  # the token before ends with @@: the next continues it
    for at, name in enumerate(names):
        if name.endswith("@@") or joined:
            spelled.append(Spelling(((" " if not joined else "") + name.removesuffix("@@")).encode(), False, joined))
            joined = name.endswith("@@")
            start, before = (at + 1, "") if joined else (at, decode([name]))
            continue
        text = decode(list(names[start : at + 1]))
        new = text[len(before) :] if text.startswith(before) else decode([name])
        if not new or "\ufffd" in new:
            spelled.append(Spelling(b""))
            continue
        waiting = [j for j in range(start + bool(before), at) if not spelled[j].data]
        data = new.encode()
        for j in waiting:
            spelled[j], data = Spelling(data[:1]), data[1:]
        spelled.append(Spelling(data))
        start, before = (at + 1, "") if waiting else (at, decode([name]))
    return spelled


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
    continues = [_continues(i, spelled, pieces, split, alone) for i in range(len(spelled))]
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


def _is_text(data: bytes) -> bool:
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def _part(character: str, token: int, owners: Sequence[int]) -> str:
    """The bytes of a character that are in one token: 猫:1, or 猫:2-3."""
    first, last = owners.index(token) + 1, len(owners) - owners[::-1].index(token)
    return f"{printable_token(character)}:{first}" + (f"-{last}" if last > first else "")


def _continues(
    i: int, spelled: Sequence[Spelling], pieces: Sequence[str], split: set[int], alone: Sequence[bool]
) -> bool:
    """Is a token part of the word before it?"""
    if i == 0 or alone[i] or alone[i - 1]:
        return False
    continues = spelled[i].continues
    if continues is not None:
        return continues
    before = i - 1
    if i in split and before in split and not pieces[i]:
        return True  # inside a character
    while before and not pieces[before] and before in split:  # the character is in the piece that it begins in
        before -= 1
    return joins(pieces[before], pieces[i])
