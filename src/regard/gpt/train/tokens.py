"""Text files as token ids: tokenized once, into a memory-mapped file.

Text is streamed, so files may be larger than memory. The file is reused until a text or the tokenizer changes.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import lzma
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Integer
from torch import Tensor

from regard.gpt.tokenizer.tokenizer import END, Tokenizer
from regard.gpt.train.hashes import check_types
from regard.support.argument_names import assigned
from regard.support.arguments import check_share, check_whole
from regard.support.files import atomically

TOKENS, DESCRIPTION = "tokens.bin", "tokens.json"
FORMAT = 1  # of both files; increased when it changes
NEW = "read for the first time"
PIECES_PER_BATCH = 64  # pieces of text tokenized at once
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


@dataclass(frozen=True)
class Tokens:
    """A text as token ids, in memory or in a file, and its hash.

    >>> tokens = Tokens.of(torch.arange(100))
    >>> training, validation = tokens.split(context_length=8, val_fraction=0.1)
    >>> len(training), len(validation)
    (90, 10)
    """

    ids: Integer[Tensor, "N"]
    vocab_size: int  # no id is as large as this
    sha256: str
    new: str = ""  # why the file was written; "" where it was there already

    @staticmethod
    def of(ids: Integer[Tensor, "N"]) -> Tokens:
        """Tokens from ids in memory."""
        if ids.dim() != 1 or ids.is_floating_point():
            raise ValueError(f"ids must be integers of shape (N,), but are {ids.dtype} of shape {tuple(ids.shape)}")
        ids = ids.to("cpu", torch.int64).contiguous()
        if len(ids) and int(ids.min()) < 0:
            raise ValueError(f"token ids must be at least 0, but one is {int(ids.min())}")
        return Tokens(ids, int(ids.max()) + 1 if len(ids) else 0, _hash(ids))

    def split(self, context_length: int, val_fraction: float) -> tuple[Integer[Tensor, "M"], Integer[Tensor, "K"]]:
        """The training part, and the last `val_fraction` for validation: at least one context, or none."""
        check_whole(context_length=context_length)
        check_share("val_fraction", val_fraction, "0.01 is usual, 0 is none")
        window = context_length + 1  # each token of a context, and the one after it
        held_out = max(int(len(self.ids) * val_fraction), window) if val_fraction else 0
        if len(self.ids) - held_out < window:
            count, parts = len(self.ids), 2 if held_out else 1
            split = f", {window:,} for training and {window:,} for validation" if held_out else ""
            longest = count // parts - 1
            shorter = f", or a shorter context: {assigned('context_length', longest)}" if longest > 1 else ""
            raise ValueError(
                f"the data has {count:,} token{'s' * (count != 1)}, but "
                f"{assigned('context_length', context_length)} needs {parts * window:,}{split}; give more text{shorter}"
            )
        return self.ids[: len(self.ids) - held_out], self.ids[len(self.ids) - held_out :]


def tokenize_files(
    files: Sequence[Path | str], tokenizer: Tokenizer, out: Path | str, *, verify: bool = True
) -> Tokens:
    """Tokenize text files into `out`/tokens.bin, or reuse it if neither files nor tokenizer have changed.

    Files end in .txt, .gz or .xz (any other is read as plain text). <|endoftext|> in a text, and the end of a file,
    become the tokenizer's end. `new` of the result says why the file was written.

    verify: compare the file with its hash, and write it again if they differ; False where that was just done.
    """
    out, paths = Path(out), [Path(file) for file in files]
    if not paths:
        raise ValueError("no data files; name at least one text file")
    expected = {
        "form": FORMAT,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": hashlib.sha256(tokenizer.to_json().encode()).hexdigest(),
        "sources": [_fingerprint(path) for path in paths],
        "dtype": "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32",
    }
    reason = _reason_to_write(expected, out, verify)
    if reason:
        _write(paths, tokenizer, out, expected)
    description = json.loads((out / DESCRIPTION).read_bytes())
    return Tokens(_mapped(out, description), tokenizer.vocab_size, description["sha256"], reason)


def train_tokenizer(files: Sequence[Path | str], vocab_size: int) -> Tokenizer:
    """Train a tokenizer on these files."""
    texts = (part for file in files for piece in pieces(Path(file)) for part in piece.split(END) if part)
    return Tokenizer.train(texts, vocab_size)


def _write(paths: list[Path], tokenizer: Tokenizer, out: Path, expected: dict[str, Any]) -> None:
    """Write tokens.bin, and then tokens.json, which says that it is complete."""
    count, digest, code = 0, hashlib.sha256(), {"uint16": "H", "uint32": "I"}[expected["dtype"]]
    out.mkdir(parents=True, exist_ok=True)
    (out / DESCRIPTION).unlink(missing_ok=True)  # it describes the file that is about to be replaced
    with atomically(out / TOKENS) as temporary, temporary.open("wb") as file:
        for ids in _ids(paths, tokenizer):
            raw = array(code, ids).tobytes()  # an id that does not fit is an error, in every version of numpy
            file.write(raw)
            digest.update(raw)
            count += len(ids)
    with atomically(out / DESCRIPTION) as temporary:
        temporary.write_text(json.dumps(expected | {"count": count, "sha256": digest.hexdigest()}, indent=1))


def _ids(paths: Iterable[Path], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """The tokens of all files, a batch of pieces at a time."""
    end = [] if tokenizer.end is None else [tokenizer.end]
    for path in paths:
        text, has_end = pieces(path), False
        while batch := list(islice(text, PIECES_PER_BATCH)):
            if not end and any(END in piece for piece in batch):
                remedy = "take it out, or use another"
                raise ValueError(f"{path} holds {END}, but this tokenizer has no such token; {remedy}")
            documents = [piece.split(END) for piece in batch]
            encoded = iter(tokenizer.encode_batch([part for parts in documents for part in parts]))
            ids: list[int] = []
            for parts in documents:
                first, *others = islice(encoded, len(parts))
                ids += first + [i for part in others for i in end + part]
            has_end = ids[-1:] == end
            yield ids
        if not has_end:
            yield end


def _fingerprint(path: Path) -> dict[str, Any]:
    """Identify a file without reading all of it: name, size, time, and a hash of its first and last bytes."""
    check_text_file(path)
    stat = path.stat()
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(1 << 16))
        file.seek(max(0, stat.st_size - (1 << 16)))
        digest.update(file.read())
    return {"name": path.name, "size": stat.st_size, "time": stat.st_mtime_ns, "ends": digest.hexdigest()}


def _reason_to_write(expected: dict[str, Any], out: Path, verify: bool) -> str:
    """Why the files must be tokenized again, by what tokens.json says; "" if they need not."""
    check_types(out, [TOKENS, DESCRIPTION])
    if not (out / DESCRIPTION).exists():
        return NEW
    try:
        found = json.loads((out / DESCRIPTION).read_bytes())
        before = {source["name"]: source for source in found["sources"]}
        size, digest = index(found["count"]) * np.dtype(expected["dtype"]).itemsize, found["sha256"]
        same = {name: found[name] == value for name, value in expected.items() if name != "vocab_size"}
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{DESCRIPTION} is damaged"
    changed = [source["name"] for source in expected["sources"] if before.get(source["name"]) != source]
    if not same["form"]:
        return "it has another format"
    if not same["tokenizer"]:
        return "the tokenizer has changed"
    if not same["sources"]:
        names = ", ".join(changed[:3]) + ("…" if len(changed) > 3 else "")
        return f"{names} changed" if changed else "the list of files has changed"
    if not (out / TOKENS).is_file() or (out / TOKENS).stat().st_size != size:
        return f"{TOKENS} is incomplete"
    if not same["dtype"] or (verify and _hash(_mapped(out, found)) != digest):
        return f"{TOKENS} or {DESCRIPTION} is damaged"
    return ""


def _mapped(out: Path, description: dict[str, Any]) -> Integer[Tensor, "N"]:
    """The ids of tokens.bin, which are read when they are used."""
    dtype = torch.uint16 if description["dtype"] == "uint16" else torch.int32  # which has more operations than uint32
    return torch.from_file(str(out / TOKENS), shared=False, size=description["count"], dtype=dtype)


def _hash(ids: Integer[Tensor, "N"]) -> str:
    return hashlib.sha256(ids.numpy().data).hexdigest()


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
    """What a file is that starts so, such as "a PNG image, not text"; "" if it may be UTF-8 text."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "text in UTF-16, not in UTF-8"
    other = "binary data" if b"\0" in start else ""
    kind = next((kind for signature, kind in _SIGNATURES.items() if start.startswith(signature)), other)
    return f"{kind}, not text" if kind else ""
