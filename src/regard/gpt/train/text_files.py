"""Text files as a stream: plain, gzip or xz, a piece at a time, each piece cut where a tokenizer would cut anyway."""

from __future__ import annotations

import codecs
import gzip
import lzma
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path

END = "<|endoftext|>"  # stands between documents
PIECE = 1 << 16  # bytes read at a time
LONGEST = 1 << 22  # characters without a line break that are kept together


def pieces(path: Path, size: int = PIECE) -> Iterator[str]:
    """A file's text, whole lines at a time.

    A piece ends after a line break that something visible follows: byte-level tokenizers never join the two, so pieces
    have the tokens that the whole has. Only in a line of more than four million characters there may be one more.
    Bytes that are no UTF-8, and an archive that is damaged, are a ValueError that says where.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    left, read = "", 0
    with _opened(path) as file:
        while True:
            block = _read(file, size, path, read)
            waiting = len(decoder.getstate()[0])
            try:
                left += decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                place = read - waiting + error.start
                raise ValueError(
                    f"data file {path} is not UTF-8 text: byte {place:,} is 0x{error.object[error.start]:02x}; "
                    f"convert it, for example with iconv -f latin1 -t utf-8"
                ) from None
            read += len(block)
            if not block:
                break
            cut = _cut(left)
            if cut:
                yield left[:cut]
                left = left[cut:]
    if left:
        yield left
    elif not read:
        raise ValueError(f"data file {path} is empty; give it some text")


def _cut(text: str) -> int:
    """Where the last line ends that something visible follows; 0 for not yet."""
    at = len(text) - 1
    while (at := text.rfind("\n", 0, at)) >= 0:
        if not text[at + 1].isspace():
            return at + 1
    if len(text) < LONGEST:
        return 0
    return max(text.rfind(" "), 0) or len(text) - len(END)  # END itself is never cut in two


def check_file(path: Path) -> None:
    """A data file must be there, be a file, and hold something."""
    if path.is_dir():
        raise ValueError(f"data file {path} is a directory; name the files in it")
    if not path.is_file():
        raise ValueError(f"data file {path} is not there; check the path")
    if path.stat().st_size == 0:
        raise ValueError(f"data file {path} is empty; give it some text")


def _opened(path: Path) -> BufferedIOBase:
    check_file(path)
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb")


def _read(file: BufferedIOBase, size: int, path: Path, read: int) -> bytes:
    try:
        return file.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise ValueError(
            f"data file {path} is damaged, or no {path.suffix} file: {error} after {read:,} bytes of text; get it again"
        ) from None
