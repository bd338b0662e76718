"""A corpus for commands: text, jsonl and token files, as rows of token ids that a model reads.

The texts of one file follow one another, with the tokenizer's end between them where it has one, and are cut into rows
of equal length; the last row of a file may be shorter. Files are streamed, so they may be larger than memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from regard.gpt.tokenizer.tokenizer import END, panics_refused
from regard.gpt.train.tokens import DESCRIPTION, PIECES_PER_BATCH, TOKENS, check_text_file, pieces
from regard.support.printable import readable
from regard.support.untrusted_json import parse_json

_TOKENS = (".npy", ".bin")
_KNOWN = (".txt", ".md", ".jsonl", ".gz", ".xz", ".npy")  # what is read of a directory, and tokens.bin
_LONGEST_LINE = 1 << 26  # characters of a line of jsonl
_IDS_AT_ONCE = 1 << 16
Encode = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True)
class RowForm:
    """How texts become rows: by this encoder, with these ids between texts, and before and after each row."""

    encode: Encode
    length: int
    vocab_size: int | None
    between: Sequence[int] = ()
    before: Sequence[int] = ()
    after: Sequence[int] = ()


def find_files(names: Sequence[str]) -> list[Path]:
    """The files that were named, and those of a directory with a known ending, in the order of their names."""
    found: list[Path] = []
    for name in names:
        path = Path(name)
        if not path.is_dir():
            found.append(path)
            continue
        known = (one for one in path.rglob("*") if one.suffix in _KNOWN or one.name == TOKENS)
        inside = sorted(one for one in known if one.is_file())
        inside = [one for one in inside if not any(part.startswith(".") for part in one.relative_to(path).parts)]
        if not inside:
            raise ValueError(f"--data {name}: no file in it ends in {', '.join(_KNOWN)}; name the files")
        found += inside
    for path in found:
        if path.suffix in _TOKENS and path.is_file() and path.stat().st_size:
            continue
        check_text_file(path)
    return found


def fingerprints(files: Sequence[Path]) -> list[list[Any]]:
    """Name, size and time of change of each file: a run resumes on the same ones only."""
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files]


def rows_of(files: Iterable[Path], form: RowForm) -> Iterator[list[int]]:
    """The rows of all files, of at least two tokens each."""
    size = form.length - len(form.before) - len(form.after)
    for path in files:
        waiting: list[int] = []
        for ids in _checked(path, form):
            waiting += ids
            for at in range(0, len(waiting) - size + 1, size):
                yield [*form.before, *waiting[at : at + size], *form.after]
            waiting = waiting[len(waiting) // size * size :]
        if len(waiting) + len(form.before) + len(form.after) > 1 and waiting:
            yield [*form.before, *waiting, *form.after]


def batches_of(rows: Iterator[list[int]], size: int, tokens: int | None) -> Iterator[list[list[int]]]:
    """Rows of one length, so many at a time, up to a number of tokens in all; the last row is cut there."""
    batch: list[list[int]] = []
    left = tokens
    for row in rows:
        if left is not None:
            row = row[:left]
            left -= len(row)
        if batch and (len(row) != len(batch[0]) or len(batch) == size):
            yield batch
            batch = []
        if len(row) > 1:
            batch.append(row)
        if left == 0:
            break
    if batch:
        yield batch


def _checked(path: Path, form: RowForm) -> Iterator[list[int]]:
    """The ids of a file, all of which the model knows."""
    for ids in _ids_of(path, form):
        if form.vocab_size is not None and ids and not 0 <= min(ids) <= max(ids) < form.vocab_size:
            wrong = next(one for one in ids if not 0 <= one < form.vocab_size)
            raise ValueError(
                f"{path} has token id {wrong}, and the model knows 0 to {form.vocab_size - 1}; give the tokens of its "
                "own tokenizer, or the text"
            )
        yield ids


def _ids_of(path: Path, form: RowForm) -> Iterator[list[int]]:
    if path.suffix in _TOKENS:
        yield from _stored_ids(path)
        return
    is_lines = ".jsonl" in path.suffixes
    texts = _texts_of_lines(path) if is_lines else pieces(path)
    while batch := list(islice(texts, PIECES_PER_BATCH)):
        parts = [[text] if is_lines or not form.between else text.split(END) for text in batch]
        with panics_refused(f"the tokenizer cannot encode {path}", hold_stderr=True):
            encoded = iter(form.encode([part for some in parts for part in some]))
        ids: list[int] = []
        for some in parts:
            first, *others = islice(encoded, len(some))
            ids += [*first, *(one for part in others for one in (*form.between, *part))]
            ids += form.between if is_lines else ()
        yield ids


def _texts_of_lines(path: Path) -> Iterator[str]:
    """The texts of a jsonl file: each line is an object with a text, or a string."""
    pending, number = "", 0
    for piece in pieces(path):
        *lines, pending = f"{pending}{piece}".split("\n")
        if len(pending) > _LONGEST_LINE:
            raise ValueError(
                f"line {number + len(lines) + 1} of {path} has more than {_LONGEST_LINE:,} characters; split it"
            )
        for line in lines:
            number += 1
            yield from _text_of_line(path, number, line)
    yield from _text_of_line(path, number + 1, pending)


def _text_of_line(path: Path, number: int, line: str) -> Iterator[str]:
    if not line.strip():
        return
    try:
        value = parse_json(line)
    except (ValueError, json.JSONDecodeError) as error:
        raise ValueError(f"line {number} of {path} is no JSON: {readable(str(error), 100)}; mend it") from None
    text = value.get("text") if isinstance(value, Mapping) else value
    if not isinstance(text, str):
        raise ValueError(f'line {number} of {path} has no text; each line is {{"text": "…"}}, or a string')
    yield text


def _stored_ids(path: Path) -> Iterator[list[int]]:
    """The ids of a token file: .npy, or the tokens.bin that `regard train` writes, described by its tokens.json."""
    array = _array(path)
    if array.ndim not in (1, 2) or array.dtype.kind not in "iu":
        raise ValueError(
            f"{path} has {array.dtype} of shape {array.shape}; token ids are whole numbers, (N,) or (rows, T)"
        )
    flat = array.reshape(-1)
    for at in range(0, len(flat), _IDS_AT_ONCE):
        yield flat[at : at + _IDS_AT_ONCE].tolist()


def _array(path: Path) -> Any:
    if path.suffix == ".npy":
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise ValueError(
                f"{path} is no array of numpy: {readable(str(error), 100)}; write it with numpy.save"
            ) from None
    beside = path.with_name(DESCRIPTION)
    try:
        described = parse_json(beside.read_bytes())
        dtype = {"uint16": np.uint16, "uint32": np.uint32}[described["dtype"]]
        array = np.memmap(path, dtype, mode="r")
    except (OSError, ValueError, LookupError, TypeError):
        raise ValueError(
            f"{path} needs the {DESCRIPTION} that regard train writes beside it; give that directory, or a .npy file"
        ) from None
    if len(array) != described.get("count"):
        raise ValueError(
            f"{path} has {len(array):,} tokens and {beside} says {described.get('count')}; write both again"
        )
    return array
