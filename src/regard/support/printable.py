r"""Strings from outside, made printable: config keys, token texts, file names, messages of other libraries.

A terminal obeys what it is sent: a key of a config.json that holds an escape sequence can change its title, its colours
or what stands on the screen. Errors about files are made printable where they leave the function that read the file
(`printable_errors`), and whatever a command prints passes `PrintableStream`, the one place for all output.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

# Control characters but line breaks and tabs, line and paragraph separators, characters that reverse the direction of
# writing, and halves of surrogate pairs. Joiners and selectors stay: words (Persian) and emoji are made with them.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff]"
    "|\r(?!\n)"
)
# What our own output may send to a terminal: colours, moves of the cursor, erasing, hiding the cursor.
_OWN = re.compile("(\x1b\\[[0-9;?]*[A-HJKhlm]|\r)")
MOST_CHARACTERS = 2000  # of an error message about a file


def printable(text: str) -> str:
    r"""The text with escapes in place of characters that a terminal would obey; line breaks and tabs stay.

    >>> print(printable("\x1b]0;title\x07 naïve 猫"))
    \x1b]0;title\x07 naïve 猫
    """
    return UNPRINTABLE.sub(_escape, text)


def readable(value: object, longest: int = 80) -> str:
    r"""A name or value from outside, for a message: on one line, printable and short.

    >>> print(readable("a\nb\x1b[2J"), readable("x" * 100, longest=5))
    a\nb\x1b[2J xxxx…
    """
    text = str(value)
    text = printable(text[: longest + 1]).replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= longest else text[: longest - 1] + "…"


@contextmanager
def printable_errors() -> Iterator[None]:
    r"""Inside this block, or in a function that this decorates, the message of a ValueError is printable and not long.

    >>> with printable_errors():
    ...     raise ValueError("no key \x1b[31m")
    Traceback (most recent call last):
    ValueError: no key \x1b[31m
    """
    try:
        yield
    except ValueError as error:
        message = printable(str(error))
        if len(message) > MOST_CHARACTERS:
            message = f"{message[: MOST_CHARACTERS // 2]} … {message[-MOST_CHARACTERS // 2 :]}"
        if message == str(error):
            raise
        raise ValueError(message) from None  # without the cause, which a traceback would print as it is


class PrintableStream:
    """A stream that makes printable what is written to it; in everything else it is the stream that it was made of.

    is_styled: our own colours and moves of the cursor pass; other escape sequences are made printable.
    """

    def __init__(self, stream: Any, is_styled: bool = False) -> None:
        self._stream, self._is_styled = stream, is_styled

    @property
    def styled(self) -> PrintableStream:
        return PrintableStream(self._stream, is_styled=True)

    def write(self, text: str) -> int:
        """Write a text, made printable."""
        parts = _OWN.split(text) if self._is_styled else [text]  # every second part is our own
        self._stream.write("".join(part if i % 2 else printable(part) for i, part in enumerate(parts)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, made printable."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def styled(stream: Any) -> Any:
    """The stream for text with colours of our own; what comes from outside is made `printable` first."""
    return getattr(stream, "styled", stream)


@contextmanager
def printable_output() -> Iterator[None]:
    """Inside this block, all output is made printable, on stdout and stderr; also the traceback of an error."""
    before = sys.stdout, sys.stderr
    kept = (type(None), PrintableStream)
    sys.stdout, sys.stderr = (one if isinstance(one, kept) else PrintableStream(one) for one in before)
    try:
        yield
    except Exception:
        sys.excepthook = _write_traceback
        raise
    finally:
        sys.stdout, sys.stderr = before


def _write_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(printable("".join(traceback.format_exception(kind, error, trace))))


def _escape(found: re.Match[str]) -> str:
    r"""As in Python; from DEL on as \u007f, so that JSON stays JSON, which has no control characters before that."""
    code = ord(found[0])
    return "\\r" if code == 13 else f"\\x{code:02x}" if code < 127 else f"\\u{code:04x}"
