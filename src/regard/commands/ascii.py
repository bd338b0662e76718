"""Output where the terminal knows no Unicode: each symbol that regard prints becomes one ASCII character.

One for one, so that columns stay aligned. UTF-8 terminals are not affected: an error handler of a codec is called only
for characters that the encoding does not have.
"""

from __future__ import annotations

import codecs
import sys
from io import TextIOWrapper

SYMBOLS = {
    "·": ".",
    "×": "x",
    "√": "V",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
    "…": "~",
    "−": "-",
    "–": "-",
    "—": "-",
    "÷": "/",
    "∞": "8",
    "≥": ">",
    "≤": "<",
    "≠": "!",
    "≈": "~",
    "±": "+",
    "■": "#",
    "□": ".",
    "█": "#",
    "▇": "#",
    "▆": "*",
    "▅": "*",
    "▄": "+",
    "▃": "=",
    "▂": "-",
    "▁": "_",
    "│": "|",
    "─": "-",
    "✓": "+",
    "✗": "x",
    "⏎": "$",
    "⇥": ">",
    "␣": "_",
    "Σ": "S",
    "ᵀ": "T",
    "∅": "0",
    "²": "2",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
    "\xa0": " ",
}


def replace(error: UnicodeError) -> tuple[str, int]:
    """The handler: ASCII of the same width for what could not be encoded, ? for what is not a symbol of ours.

    >>> "2 × 7 → √64 · 猫".encode("ascii", "regard.ascii")
    b'2 x 7 > V64 . ?'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(SYMBOLS.get(c, "?") for c in error.object[error.start : error.end]), error.end


def _find_codec(name: str) -> codecs.CodecInfo | None:
    """ASCII by another name: typer takes a stream called ascii for misconfigured, and writes UTF-8 to it."""
    if name != _CODEC:
        return None
    ascii = codecs.lookup("ascii")
    coders = (ascii.incrementalencoder, ascii.incrementaldecoder)
    return codecs.CodecInfo(ascii.encode, ascii.decode, ascii.streamreader, ascii.streamwriter, *coders, name=_CODEC)


_CODEC = "regard_ascii"
codecs.register(_find_codec)
codecs.register_error("regard.ascii", replace)


def use_ascii_where_needed() -> None:
    """Let stdout and stderr replace what their encoding does not have, instead of raising UnicodeEncodeError."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_CODEC if is_ascii else None, errors="regard.ascii")
