"""Output where the terminal knows no Unicode: each symbol that regard prints becomes ASCII that means the same.

Most become one character; −∞ is -inf, √64 is sqrt(64), 2³² is 2^32. show/terminal/table.py lays its columns out with
what will be written. UTF-8 terminals are not affected: an error handler of a codec is called only for characters that
the encoding does not have.
"""

import codecs
import re
import sys
from io import TextIOWrapper

# A symbol, and the ASCII that stands for it.
_TABLE = """
    ·. ×x √sqrt →> ←< ↑^ ↓v …~ −- –- —- ÷/ ∞inf ≥>= ≤<= ≠!= ≈~ ±+-
    ■# □. █# ▇# ▆* ▅* ▄+ ▃= ▂- ▁_ ▓# ▒+ ░-
    │| ─- ┌+ ┐+ └+ ┘+ ├+ ┤+ ┬+ ┴+ ┼+ ╭+ ╮+ ╰+ ╯+
    ✓+ ✗x ⏎$ ⇥> ␣_ ΣS ᵀT ∅0 ∂d “" ”" «" »" ‘' ’' ⟨< ⟩>
"""
SYMBOLS = {word[0]: word[1:] for word in _TABLE.split()} | {"\xa0": " "}
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_ARGUMENT = re.compile(r"\w+(\.\w+)*", re.ASCII)  # what a root is taken of, unless it is in brackets


def replace(error: UnicodeError) -> tuple[str, int]:
    """The handler: ASCII for what could not be encoded, ? for what is not a symbol of ours.

    >>> "2 × 7 → √64 · −∞ · 2³² · 猫".encode("ascii", "regard.ascii")
    b'2 x 7 > sqrt(64) . -inf . 2^32 . ?'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    text = _SUPERSCRIPT.sub(lambda digits: "^" + digits[0].translate(SUPERSCRIPTS), text)
    text = "".join(c if c.isascii() else SYMBOLS.get(c, "?") for c in text)
    argument = _ARGUMENT.match(error.object, error.end)
    if argument and error.object[error.end - 1] == "√":
        return f"{text}({argument[0]})", argument.end()
    return text, error.end


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
