"""Headers of safetensors files and JSON files, checked before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from regard.support.printable import readable
from regard.support.untrusted_json import parse_json

# By their names in safetensors, without types smaller than a byte, which torch cannot compute with.
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
LONGEST_HEADER = 4 << 20  # bytes; enough for 15,000 tensors, and parsed in less than 50 MB of memory
MOST_AXES = 8
LARGEST = 2**63 - 1  # the largest size that torch can represent

DOWNLOAD = "download it again"
UNTRUSTED = "get the file from somebody you trust"


class Stored(NamedTuple):
    """The header entry of one tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]


def read_header(path: Path | str) -> dict[str, Stored]:
    """The tensors of a safetensors file, name → dtype and shape, from its header, checked against the file's size.

    >>> import tempfile
    >>> from regard.support.files import write_safetensors
    >>> path = Path(tempfile.mkdtemp()) / "x.safetensors"
    >>> write_safetensors(path, {"x": torch.zeros(2, 3)})
    >>> read_header(path)
    {'x': Stored(dtype=torch.float32, shape=(2, 3))}

    A file is 8 bytes with the header's length, the header as JSON, and the tensors' bytes one after the other without
    gaps. Anything else is a ValueError.
    """
    path = Path(path)
    size = path.stat().st_size
    with _refusals_of(path), path.open("rb") as file:
        if size < 8:
            _refuse(f"a safetensors file starts with 8 bytes, and this one has {size}" if size else "the file is empty")
        length = int.from_bytes(file.read(8), "little")
        if length > size - 8:
            what = f"the header should have {length:,} bytes, but only {size - 8:,} follow"
            _refuse(what, f"{DOWNLOAD}, and see that it is a safetensors file")
        _check_length("the header", length)
        header = _parse_object(file.read(length), "the header")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            _refuse("__metadata__ must be a JSON object of texts")
        entries = {name: _parse_entry(readable(name), entry) for name, entry in header.items()}
        _check_ranges(sorted((*place, readable(name)) for name, (_, place) in entries.items()), size - 8 - length)
    return {name: stored for name, (stored, _) in entries.items()}


def read_json(path: Path | str) -> dict[str, Any]:
    """A JSON object from a file, without duplicate names; anything else is a ValueError.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "config.json"
    >>> _ = path.write_text('{"n_layer": 12}')
    >>> read_json(path)
    {'n_layer': 12}
    """
    path = Path(path)
    with _refusals_of(path):
        _check_length("the file", path.stat().st_size)
        return _parse_object(path.read_bytes(), "the file")


@contextmanager
def _refusals_of(path: Path) -> Iterator[None]:
    """Put the name of the file before the errors about what it holds."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}. Nothing was loaded.") from None


def _refuse(what: str, remedy: str = DOWNLOAD) -> NoReturn:
    raise ValueError(f"{what}; {remedy}")


def _check_length(what: str, length: int) -> None:
    if length > LONGEST_HEADER:
        _refuse(f"{what} has {length:,} bytes, more than the {LONGEST_HEADER:,} that any model needs", UNTRUSTED)


def _parse_object(raw: bytes, what: str) -> dict[str, Any]:
    try:
        content = parse_json(raw)
    except ValueError as error:  # not UTF-8, not JSON, too large or too deep
        _refuse(f"{what} is no JSON of the kind that belongs here: {readable(error, 160)}")
    if not isinstance(content, dict):
        _refuse(f"{what} must be a JSON object, but is a {type(content).__name__}")
    return content


def _parse_entry(name: str, entry: object) -> tuple[Stored, tuple[int, int]]:
    """The entry of one tensor, and where its bytes begin and end."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(f"{name} must have dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        known = ", ".join(DTYPES)
        _refuse(f"{name} has dtype {readable(dtype)}, which is none of {known}", "convert it to one of these")
    if not _are_sizes(shape) or len(shape) > MOST_AXES:
        _refuse(f"{name} has shape {readable(shape)}, which is no list of up to {MOST_AXES} whole numbers")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(f"{name} has data_offsets {readable(offsets)}, which must be a begin and an end after it")
    begin, end = offsets
    needed, held = DTYPES[dtype].itemsize * math.prod(shape), end - begin
    if needed != held:
        _refuse(f"{name}, {tuple(shape)} of {dtype}, needs {needed:,} bytes, but its place has {held:,}")
    return Stored(DTYPES[dtype], tuple(shape)), (begin, end)


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(n) is int and 0 <= n <= LARGEST for n in values)


def _check_ranges(ranges: list[tuple[int, int, str]], size: int) -> None:
    """The tensors' bytes must fill the rest of the file, without gaps or overlaps."""
    reached = 0
    for begin, end, name in ranges:
        if begin < reached:
            _refuse(f"{name} begins at byte {begin:,}, inside another tensor that ends at {reached:,}", UNTRUSTED)
        if begin > reached:
            _refuse(f"the bytes from {reached:,} to {begin:,}, before {name}, belong to no tensor", UNTRUSTED)
        reached = end
    if reached > size:
        what = f"the tensors need {reached:,} bytes, but the file has {size:,} for them"
        _refuse(what, f"{DOWNLOAD}: the file is shorter than its header says")
    if reached < size:
        what = f"the tensors end at byte {reached:,}, but {size - reached:,} more follow"
        _refuse(what, f"{DOWNLOAD}: the file is longer than its header says")
