"""Headers of safetensors files and JSON files, checked before anything is allocated.

A safetensors file lists its tensors in a header. `read_header` reads that header alone and refuses a file whose header
and size do not agree.
"""

from __future__ import annotations

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
    if size == 0:
        _refuse(path, "the file is empty", DOWNLOAD)
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            _refuse(path, f"a safetensors file starts with 8 bytes, and this one has {size}", DOWNLOAD)
        length = int.from_bytes(start, "little")
        if length > size - 8:
            what = f"the header should have {length:,} bytes, but only {size - 8:,} follow"
            _refuse(path, what, f"{DOWNLOAD}, and see that it is a safetensors file")
        if length > LONGEST_HEADER:
            what = f"the header has {length:,} bytes, more than the {LONGEST_HEADER:,} that any model needs"
            _refuse(path, what, UNTRUSTED)
        header = _parse_object(path, file.read(length), "the header")
    _check_metadata(path, header.pop("__metadata__", {}))
    tensors: dict[str, Stored] = {}
    ranges: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        tensors[name], (begin, end) = _parse_entry(path, name, entry)
        ranges.append((begin, end, name))
    _check_ranges(path, sorted(ranges), size - 8 - length)
    return tensors


def read_json(path: Path | str) -> dict[str, Any]:
    """A JSON object from a file, without duplicate names; anything else is a ValueError.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "config.json"
    >>> _ = path.write_text('{"n_layer": 12}')
    >>> read_json(path)
    {'n_layer': 12}
    """
    path = Path(path)
    size = path.stat().st_size
    if size > LONGEST_HEADER:
        what = f"the file has {size:,} bytes, more than the {LONGEST_HEADER:,} that any model needs"
        _refuse(path, what, UNTRUSTED)
    return _parse_object(path, path.read_bytes(), "the file")


def _refuse(path: Path, what: str, remedy: str) -> NoReturn:
    raise ValueError(f"{path}: {what}; {remedy}. Nothing was loaded.")


def _parse_object(path: Path, raw: bytes, what: str) -> dict[str, Any]:
    try:
        header = parse_json(raw)
    except ValueError as error:  # not UTF-8, not JSON, too large or too deep
        _refuse(path, f"{what} is no JSON of the kind that belongs here: {readable(error, 160)}", DOWNLOAD)
    if not isinstance(header, dict):
        _refuse(path, f"{what} must be a JSON object, but is a {type(header).__name__}", DOWNLOAD)
    return header


def _check_metadata(path: Path, metadata: object) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        _refuse(path, "__metadata__ must be a JSON object of texts", DOWNLOAD)


def _parse_entry(path: Path, name: str, entry: object) -> tuple[Stored, tuple[int, int]]:
    """The entry of one tensor, and where its bytes begin and end."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(path, f"{readable(name)} must have dtype, shape and data_offsets, and nothing else", DOWNLOAD)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        what = f"{readable(name)} has dtype {readable(dtype)}, which is none of {', '.join(DTYPES)}"
        _refuse(path, what, "convert it to one of these")
    if not _are_sizes(shape) or len(shape) > MOST_AXES:
        what = f"{readable(name)} has shape {readable(shape)}, which is no list of up to {MOST_AXES} whole numbers"
        _refuse(path, what, DOWNLOAD)
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        what = f"{readable(name)} has data_offsets {readable(offsets)}, which must be a begin and an end after it"
        _refuse(path, what, DOWNLOAD)
    nbytes = DTYPES[dtype].itemsize
    for axis in shape:
        nbytes *= axis  # Python integers do not overflow
    begin, end = offsets
    if nbytes != end - begin:
        what = f"{readable(name)}, {tuple(shape)} of {dtype}, needs {nbytes:,} bytes, but its place has {end - begin:,}"
        _refuse(path, what, DOWNLOAD)
    return Stored(DTYPES[dtype], tuple(shape)), (begin, end)


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(n) is int and 0 <= n <= LARGEST for n in values)


def _check_ranges(path: Path, ranges: list[tuple[int, int, str]], size: int) -> None:
    """The tensors' bytes must fill the rest of the file, without gaps or overlaps."""
    reached = 0
    for begin, end, name in ranges:
        if begin < reached:
            what = f"{readable(name)} begins at byte {begin:,}, inside another tensor that ends at {reached:,}"
            _refuse(path, what, UNTRUSTED)
        if begin > reached:
            what = f"the bytes from {reached:,} to {begin:,}, before {readable(name)}, belong to no tensor"
            _refuse(path, what, UNTRUSTED)
        reached = end
    if reached > size:
        what = f"the tensors need {reached:,} bytes, but the file has {size:,} for them"
        _refuse(path, what, f"{DOWNLOAD}: the file is shorter than its header says")
    if reached < size:
        what = f"the tensors end at byte {reached:,}, but {size - reached:,} more follow"
        _refuse(path, what, f"{DOWNLOAD}: the file is longer than its header says")
