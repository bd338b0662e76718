"""Tokenizer: text to token ids and back, byte for byte.

Byte-level BPE, as in GPT-2: every byte is a token, and frequent pairs become tokens too, so that any text can be
encoded and decodes to itself. Hugging Face's `tokenizers` does the work.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.gpt.tokenizer.file_checks import TokenizerContent, check_tokenizer, check_tokenizer_file, not_a_tokenizer
from regard.gpt.tokenizer.patterns import try_patterns
from regard.support.arguments import check_whole
from regard.support.files import atomically
from regard.support.printable import printable_errors, readable
from regard.support.tokens import byte_of_character

if TYPE_CHECKING:
    import tokenizers

END = "<|endoftext|>"  # separates documents
SMALLEST = 257  # 256 bytes and the end
_ONE_AT_A_TIME = threading.RLock()  # stderr belongs to the process
_TRIED = "The cat's 3.14 naïve\u0301 猫 🐈\n\n  end "


class Tokenizer:
    """Text to token ids and back.

    >>> tokenizer = Tokenizer.train(["the cat sat on the mat, the cat sat"], vocab_size=270)
    >>> ids = tokenizer.encode("the cat, naïve 🐈")
    >>> tokenizer.decode(ids)
    'the cat, naïve 🐈'
    >>> tokenizer.pieces(ids)[:3]
    ['the', ' cat', ',']

    vocab_size: the number of tokens.
    end: the id of <|endoftext|>, which separates documents; None where the vocabulary has none.
    """

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        # A file may ask for truncation or padding; here a text is its tokens and nothing else.
        inner.no_truncation()
        inner.no_padding()
        inner.encode_special_tokens = True  # so that their names in a text are encoded as text
        self._inner = self.backend_tokenizer = inner  # the second is its name in transformers
        self._encoding_can_panic = self._decoding_can_panic = False
        self.vocab_size: int = inner.get_vocab_size()
        self.end: int | None = inner.token_to_id(END)
        self._bytes = byte_of_character() if "ByteLevel" in repr(inner.decoder) else None

    @staticmethod
    def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
        """Learn a vocabulary from texts: 256 bytes, <|endoftext|> as token 0, and the most frequent pairs.

        >>> Tokenizer.train(["to be or not to be"], vocab_size=260).vocab_size
        260

        The same texts give the same vocabulary. If they have too few pairs, it is smaller than `vocab_size`.
        """
        from tokenizers import Tokenizer as Inner
        from tokenizers import decoders, models, pre_tokenizers, trainers

        check_whole(vocab_size=vocab_size)
        if vocab_size < SMALLEST:
            rule = f"must be at least {SMALLEST}, 256 bytes and {END}; 4096 is usual for a small model"
            raise ValueError(f"vocab_size ({vocab_size}) {rule}")
        if isinstance(texts, str):
            raise ValueError('texts is one text, which would be read character by character; pass a list: ["…"]')
        inner = Inner(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
        )
        inner.train_from_iterator((_checked(text) for text in texts), trainer)
        return Tokenizer(inner)

    @staticmethod
    @printable_errors()
    def load(path: Path | str) -> Tokenizer:
        """A tokenizer from a tokenizer.json, or from a directory that holds one."""
        path = Path(path)
        path = path / "tokenizer.json" if path.is_dir() else path
        if not path.is_file():
            raise ValueError(f"there is no {path}; a tokenizer is one file, tokenizer.json")
        content = check_tokenizer_file(path)
        try:
            return _built(content)
        except ValueError as error:
            raise not_a_tokenizer(path, error) from None

    def save(self, path: Path | str) -> None:
        """Write tokenizer.json, atomically and without whitespace, to this path or into this directory."""
        path = Path(path)
        with atomically(path / "tokenizer.json" if path.is_dir() else path) as temporary:
            temporary.write_text(self.to_json(), encoding="utf-8")

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The token ids of a text.

        A special token's name in the text, such as <|endoftext|>, is encoded as plain text, so that a text cannot
        contain its own end; decode returns the text byte for byte. With special=True such names become the tokens they
        name, and the tokenizer's own special tokens (Llama's <s>) are added, as in transformers.

        Tokenizers that normalize the text (Qwen's composes accents with their letters) return it normalized.
        """
        return self.encode_batch([text], special)[0]

    def encode_batch(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        """The token ids of many texts, on all cores."""
        texts = [_checked(text) for text in texts]
        inner = self._with_special_names if special else self._inner
        with panics_refused("the tokenizer cannot encode this text", self._encoding_can_panic):
            return [encoding.ids for encoding in inner.encode_batch_fast(texts, add_special_tokens=special)]

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """The text of token ids. Invalid UTF-8 and ids without a token become U+FFFD: �."""
        runs = groupby(_as_list(ids), lambda i: self._inner.id_to_token(i) is not None)
        return "".join(self._decode(list(run)) if known else "\ufffd" * len(list(run)) for known, run in runs)

    def _decode(self, ids: list[int]) -> str:
        with panics_refused("the tokenizer cannot decode these tokens", self._decoding_can_panic):
            return str(self._inner.decode(ids, skip_special_tokens=False))

    def pieces(self, ids: Iterable[int] | Tensor) -> list[str]:
        r"""Each token as its own text, for tables and figures; a byte of a multi-byte character is written \xe4."""
        return [self._piece(i) for i in _as_list(ids)]

    def token(self, id: int) -> str:
        """A token as the vocabulary spells it: Ġcat for " cat" in GPT-2's."""
        token = self._inner.id_to_token(id) if id >= 0 else None
        if token is None:
            size = self.vocab_size
            raise ValueError(f"token id {id} is not among this tokenizer's {size} (0 to {size - 1})")
        return str(token)

    def stream(self) -> StreamingDecoder:
        """A decoder for tokens that arrive one by one."""
        return StreamingDecoder(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, (self.to_json(),)  # copies made by tokenizers lose what is not in the file

    @cached_property
    def _with_special_names(self) -> tokenizers.Tokenizer:
        """A second tokenizer: switching the setting of the first would not be thread-safe."""
        return type(self._inner).from_str(self.to_json())

    def _piece(self, i: int) -> str:
        token = self._inner.id_to_token(i)
        if token is None:
            return "\ufffd"
        if self._bytes is not None and all(character in self._bytes for character in token):
            return bytes(self._bytes[character] for character in token).decode(errors="backslashreplace")
        return str(token).replace("▁", " ")  # how Llama's and Mistral's vocabularies write a space

    def to_json(self) -> str:
        """The content of tokenizer.json."""
        return str(self._inner.to_str(pretty=False))

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size}, end={self.end})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())


class StreamingDecoder:
    """Decode tokens as they arrive: each feed returns the text that is complete, and never splits a character.

    >>> tokenizer = Tokenizer.train([], vocab_size=257)
    >>> stream = tokenizer.stream()
    >>> [stream.feed(i) for i in tokenizer.encode("aé")]
    ['a', '', 'é']
    >>> stream.finish()
    ''

    The texts of all feeds and finish, joined, are what decode returns.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decode = tokenizer.decode
        self._before: list[int] = []  # returned already; some tokenizers decode a token by the one before it
        self._waiting: list[int] = []

    def feed(self, id: int) -> str:
        """Add a token; returns the text that is now complete, which may be empty."""
        self._waiting.append(int(id))
        text = self._text()
        if text.endswith("\ufffd"):  # perhaps the first bytes of a character
            return ""
        self._before, self._waiting = self._waiting, []
        return text

    def finish(self) -> str:
        """The remaining text; an incomplete character becomes U+FFFD."""
        text, self._before, self._waiting = self._text(), [], []
        return text

    def _text(self) -> str:
        return self._decode(self._before + self._waiting)[len(self._decode(self._before)) :]


def _read(content: str) -> Tokenizer:
    return _built(check_tokenizer(content.encode()))


def _built(content: TokenizerContent) -> Tokenizer:
    """A tokenizer from checked content. One that can panic is tried once, so that it fails here if it always does."""
    from tokenizers import Tokenizer as Inner

    with panics_refused("tokenizers cannot read it", hold_stderr=True):
        try_patterns(content.patterns)
        tokenizer = Tokenizer(Inner.from_buffer(content.raw))
        tokenizer._encoding_can_panic = content.encoding_can_panic
        tokenizer._decoding_can_panic = content.decoding_can_panic
        if content.encoding_can_panic or content.decoding_can_panic:
            with suppress(Exception):  # a text that it does not know is no fault of the file; a panic is no Exception
                tokenizer._inner.decode(tokenizer._inner.encode(_TRIED).ids)
    return tokenizer


def _checked(text: str) -> str:
    """The text, if UTF-8 can encode it."""
    if not isinstance(text, str):
        raise ValueError(f"a text must be a str, but is {type(text).__name__}; bytes have .decode()")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is U+{ord(text[error.start]):04X}, half of a surrogate pair, which "
            'no file can hold; take it out, or use text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")'
        ) from None
    return text


def _as_list(ids: Iterable[int] | Tensor) -> list[int]:
    numbers = [int(i) for i in (ids.tolist() if isinstance(ids, Tensor) else ids)]
    wrong = next((i for i in numbers if not 0 <= i < 1 << 32), None)
    if wrong is not None:
        raise ValueError(f"token id {wrong} must be a whole number of at least 0 and below 2³²")
    return numbers


@contextmanager
def panics_refused(what: str, hold_stderr: bool = False) -> Iterator[None]:
    """Inside this block, an error of the Rust library or a panic is a ValueError that says `what` failed.

    A panic is a BaseException, which `except Exception` does not catch; it prints a backtrace to stderr.

    >>> with panics_refused("the tokenizer cannot encode this text"):
    ...     raise Exception("WordPiece error: Missing [UNK] token from the vocabulary")
    Traceback (most recent call last):
    ValueError: the tokenizer cannot encode this text: WordPiece error: Missing [UNK] token from the vocabulary

    hold_stderr: hold back what anybody writes to stderr meanwhile, and drop it if there was a panic. For calls that may
    panic; it takes a tenth of a millisecond.
    """
    try:
        with _held_stderr() if hold_stderr else nullcontext():
            yield
    except BaseException as error:
        if type(error) is not Exception and not is_panic(error):  # tokenizers raises nothing narrower
            raise
        raise ValueError(f"{what}: {readable(error, 160)}") from None


def is_panic(error: BaseException) -> bool:
    """Is it a panic of a Rust library? Each has a class of its own for that, which cannot be imported."""
    return type(error).__name__ == "PanicException"


@contextmanager
def _held_stderr() -> Iterator[None]:
    with _ONE_AT_A_TIME, tempfile.TemporaryFile() as held:
        with suppress(Exception):
            sys.stderr.flush()
        try:
            stderr = os.dup(2)
        except OSError:  # the process has none
            yield
            return
        os.dup2(held.fileno(), 2)
        panicked = False
        try:
            yield
        except BaseException as error:
            panicked = is_panic(error)
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            with suppress(OSError):
                os.write(2, b"" if panicked else held.read())
