"""Text files as a stream: plain, gzip or xz, in pieces cut where a tokenizer splits anyway."""

from __future__ import annotations

import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from regard.gpt.tokenizer.tokenizer import END

BLOCK = 1 << 16  # bytes read at a time
_SIGNATURES = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip archive without .gz in its name",
    b"\xfd7zXZ": "an xz archive without .xz in its name",
}
_OPEN: dict[str, Callable[[Path, str], Any]] = {".gz": gzip.open, ".xz": lzma.open}
LONGEST = 1 << 22  # characters without a line break that are kept in one piece


def pieces(path: Path, size: int = BLOCK) -> Iterator[str]:
    """A file's text in pieces of full lines.

    A piece ends after a line break that is followed by a visible character: byte-level tokenizers never merge the two,
    so the pieces have the same tokens as the full text. Only a line of more than four million characters may be split
    and have one token more. Invalid UTF-8 and damaged archives raise a ValueError that says where.
    """
    check_text_file(path)
    decoder = codecs.getincrementaldecoder("utf-8")()
    pending, read, block = "", 0, b" "
    with _OPEN.get(path.suffix, Path.open)(path, "rb") as file:
        while block:
            undecoded = len(decoder.getstate()[0])
            try:
                block = file.read(size)
                pending += decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                byte = f"byte {read - undecoded + error.start:,} is 0x{error.object[error.start]:02x}"
                remedy = "convert it, for example with iconv -f latin1 -t utf-8"
                raise ValueError(f"data file {path} is not UTF-8 text: {byte}; {remedy}") from None
            except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
                problem = f"is damaged, or no {path.suffix} file: {error} after {read:,} bytes of text"
                raise ValueError(f"data file {path} {problem}; get it again") from None
            read += len(block)
            if cut := _last_cut(pending) if block else len(pending):
                yield pending[:cut]
                pending = pending[cut:]
    if not read:
        raise ValueError(f"data file {path} is empty; give it some text")


def _last_cut(text: str) -> int:
    """The end of the last line that is followed by a visible character; 0 if there is none yet."""
    at = len(text) - 1
    while (at := text.rfind("\n", 0, at)) >= 0:
        if not text[at + 1].isspace():
            return at + 1
    if len(text) < LONGEST:
        return 0
    blank = text.rfind(" ")
    if blank > 0:
        return blank  # END holds no blank
    cut = len(text) - len(END)  # an END whose first characters have been read stays whole after the cut
    split = text.find(END, cut - len(END) + 1, cut + len(END) - 1)  # the END that a cut here would split
    return cut if split < 0 else split + len(END)


def check_text_file(path: Path) -> None:
    """A data file must exist, be a file, hold text, and not be empty."""
    if path.is_dir():
        raise ValueError(f"data file {path} is a directory; name the files in it")
    if not path.is_file():
        raise ValueError(f"data file {path} is not there; check the path")
    if path.stat().st_size == 0:
        raise ValueError(f"data file {path} is empty; give it some text")
    if path.suffix not in _OPEN:
        with path.open("rb") as file:
            reason = not_text(file.read(1024))
        if reason:
            raise ValueError(f"data file {path} is {reason}; give text files in UTF-8: .txt, .gz or .xz")


def not_text(start: bytes) -> str:
    r"""What a file is that starts so; "" if it may be UTF-8 text.

    >>> not_text(b"\x89PNG\r\n\x1a\n"), not_text(b"Once upon a time")
    ('a PNG image, not text', '')
    """
    for signature, kind in _SIGNATURES.items():
        if start.startswith(signature):
            return f"{kind}, not text"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "text in UTF-16, not in UTF-8"
    return "binary data, not text" if b"\0" in start else ""
