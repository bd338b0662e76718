"""Files that are read distrustfully and written so that nothing is lost.

A safetensors file says in its header what it holds. `contents` reads that header alone and refuses whatever does not
add up, before memory is taken. `atomically` and `write_safely` put a new file in place whole or not at all.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

# By the names safetensors gives them. Types smaller than a byte are left out: nothing here could compute with them.
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
LONGEST_HEADER = 16 << 20  # bytes; room for some 150,000 tensors, and little enough to parse without fear
MOST_AXES = 8
MOST = 2**63 - 1  # the largest number torch can count to
ABANDONED = 600  # seconds after which an unfinished file belongs to nobody

AGAIN = "download it again"


class Stored(NamedTuple):
    """What a file says of one tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]


def contents(path: Path | str) -> dict[str, Stored]:
    """What a safetensors file holds: name → dtype and shape, from its header alone, checked against its size.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "x.safetensors"
    >>> write_safely(path, {"x": torch.zeros(2, 3)})
    >>> contents(path)
    {'x': Stored(dtype=torch.float32, shape=(2, 3))}

    8 bytes give the header's length, the header is JSON, and the tensors' bytes follow one behind the other without
    holes. Whatever does not fit that is refused with a ValueError.
    """
    path = Path(path)
    size = path.stat().st_size
    if size == 0:
        _refuse(path, "the file is empty", AGAIN)
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            _refuse(path, f"a safetensors file starts with 8 bytes, and this one has {size}", AGAIN)
        length = int.from_bytes(start, "little")
        if length > size - 8:
            what = f"the header should have {length:,} bytes, but only {size - 8:,} follow"
            _refuse(path, what, f"{AGAIN}, and see that it is a safetensors file")
        if length > LONGEST_HEADER:
            what = f"the header has {length:,} bytes, more than the {LONGEST_HEADER:,} that any model needs"
            _refuse(path, what, "get the file from somebody you trust")
        header = _parsed(path, file.read(length), "the header")
    _check_metadata(path, header.pop("__metadata__", {}))
    found: dict[str, Stored] = {}
    places: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        found[name], (begin, end) = _entry(path, name, entry)
        places.append((begin, end, name))
    _check_places(path, sorted(places), size - 8 - length)
    return found


def read_json(path: Path | str) -> dict[str, Any]:
    """A JSON object from a file, each name in it once; anything else is refused with a ValueError.

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
        _refuse(path, what, "get the file from somebody you trust")
    return _parsed(path, path.read_bytes(), "the file")


class NotWritten(OSError):
    """A file could not be written; what was there before is untouched."""


@contextmanager
def atomically(path: Path | str) -> Iterator[Path]:
    """Replace a file whole or not at all: write to the path this gives, and it takes its place at the end.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with atomically(path) as temporary:
    ...     _ = temporary.write_text("all of it")
    >>> path.read_text()
    'all of it'

    The temporary file lies in the same directory. It is brought to the disk (fsync) before it is renamed, and so is
    the new name. If anything fails, it is removed and what was there before is untouched; a full disk or a missing
    permission is an OSError that says so. What a killed process left behind is removed by the next one to write here.
    """
    path = Path(path)
    if path.is_dir():
        raise _explained(path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        _remove_abandoned(path, temporary)
        yield temporary
        temporary.chmod(mode)  # safetensors makes files that only their owner may read
        _sync(temporary)
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, NotWritten) or not isinstance(error, OSError):
            raise
        if error.filename not in (None, str(temporary), temporary):  # another file's failure
            raise
        raise _explained(path, error) from error
    _sync_directory(path.parent)


def write_safely(path: Path | str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a safetensors file, whole or not at all.

    >>> import tempfile
    >>> write_safely(Path(tempfile.mkdtemp()) / "x.safetensors", {"x": torch.zeros(2, 3)}, {"format": "pt"})
    """
    with atomically(path) as temporary:
        write_through(temporary, tensors, metadata)


def write_through(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a file that nobody reads yet, such as the one atomically gives, and bring it to the disk."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    ready = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(ready, path, None if metadata is None else dict(metadata))
    except SafetensorError as error:  # its word for every failure to write
        raise _as_os_error(error) from error
    _sync(path)


def _refuse(path: Path, what: str, remedy: str) -> NoReturn:
    raise ValueError(f"{path}: {what}; {remedy}. Nothing was loaded.")


def _parsed(path: Path, raw: bytes, what: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for name, value in pairs:
            if name in seen:
                raise ValueError(f"{readable(name)} is there twice")
            seen[name] = value
        return seen

    def whole(digits: str) -> int:
        if len(digits) > 19:  # more than any size needs, and Python would spend long on a million digits
            raise ValueError(f"no size has {len(digits):,} digits")
        return int(digits)

    try:
        header = json.loads(raw.decode(), object_pairs_hook=once, parse_int=whole)
    except RecursionError:
        _refuse(path, f"{what} is nested too deeply", "get the file from somebody you trust")
    except ValueError as error:  # not UTF-8, not JSON, or one of the two above
        _refuse(path, f"{what} is no JSON of the kind that belongs here: {readable(str(error))}", AGAIN)
    if not isinstance(header, dict):
        _refuse(path, f"{what} must be a JSON object, but is a {type(header).__name__}", AGAIN)
    return header


def _check_metadata(path: Path, metadata: object) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        _refuse(path, "__metadata__ must be a JSON object of texts", AGAIN)


def _entry(path: Path, name: str, entry: object) -> tuple[Stored, tuple[int, int]]:
    """One tensor of the header: what it is, and where its bytes begin and end."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(path, f"{readable(name)} must have dtype, shape and data_offsets, and nothing else", AGAIN)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        what = f"{readable(name)} has dtype {readable(str(dtype))}, which is none of {', '.join(DTYPES)}"
        _refuse(path, what, "convert it to one of these")
    if not _whole_numbers(shape) or len(shape) > MOST_AXES:
        what = f"{readable(name)} has shape {readable(str(shape))}, which is no list of up to {MOST_AXES} whole numbers"
        _refuse(path, what, AGAIN)
    if not _whole_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        what = f"{readable(name)} has data_offsets {readable(str(offsets))}, which must be a begin and an end after it"
        _refuse(path, what, AGAIN)
    nbytes = DTYPES[dtype].itemsize
    for axis in shape:
        nbytes *= axis  # Python's own numbers: nothing wraps around
    begin, end = offsets
    if nbytes != end - begin:
        what = f"{readable(name)}, {tuple(shape)} of {dtype}, needs {nbytes:,} bytes, but its place has {end - begin:,}"
        _refuse(path, what, AGAIN)
    return Stored(DTYPES[dtype], tuple(shape)), (begin, end)


def _whole_numbers(found: object) -> bool:
    return isinstance(found, list) and all(type(n) is int and 0 <= n <= MOST for n in found)


def _check_places(path: Path, places: list[tuple[int, int, str]], size: int) -> None:
    """One tensor's bytes begin where another's end; together they are all there is."""
    reached = 0
    for begin, end, name in places:
        if begin < reached:
            what = f"{readable(name)} begins at byte {begin:,}, inside another tensor that ends at {reached:,}"
            _refuse(path, what, "get the file from somebody you trust")
        if begin > reached:
            what = f"the bytes from {reached:,} to {begin:,}, before {readable(name)}, belong to no tensor"
            _refuse(path, what, "get the file from somebody you trust")
        reached = end
    if reached > size:
        what = f"the tensors need {reached:,} bytes, but the file has {size:,} for them"
        _refuse(path, what, f"{AGAIN}: the file is shorter than its header says")
    if reached < size:
        what = f"the tensors end at byte {reached:,}, but {size - reached:,} more follow"
        _refuse(path, what, f"{AGAIN}: the file is longer than its header says")


def readable(text: str) -> str:
    """A name or a value from a stranger's file: at most one line of it, and nothing that a terminal would obey."""
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= 80 else text[:79] + "…"


def _remove_abandoned(path: Path, temporary: Path) -> None:
    now = temporary.stat().st_mtime  # by the clock of the disk, which may be another machine's
    for old in path.parent.glob(".*.partial"):
        with suppress(OSError):  # another process may have removed it
            if old.name.startswith(f".{path.name}.") and now - old.stat().st_mtime > ABANDONED:
                old.unlink()


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    if os.name != "posix":  # elsewhere a directory cannot be opened, nor need be
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network disks know no such thing
            raise
    finally:
        os.close(handle)


def _explained(path: Path, error: OSError) -> NotWritten:
    """The same error, with what happened to the file and what to do."""
    why = {
        errno.ENOSPC: "the disk is full; free some space and save again",
        errno.EDQUOT: "your share of the disk is used up; free some space and save again",
        errno.EFBIG: "the file would be larger than is allowed here; raise the limit or save elsewhere",
        errno.EROFS: "the disk may only be read; save elsewhere",
        errno.EACCES: "that is not permitted; save where you may write",
        errno.EPERM: "that is not permitted; save where you may write",
        errno.ENOENT: "its directory is missing; make it first",
        errno.ENOTDIR: f"{path.parent} is no directory; save elsewhere",
        errno.EISDIR: "a directory has that name; save elsewhere",
    }.get(error.errno or 0, error.strerror or str(error))
    message = f"{path} could not be written: {why}. What was there before is untouched."
    return NotWritten(error.errno, message) if error.errno else NotWritten(message)


def _as_os_error(error: Exception) -> OSError:
    """The OSError behind a message such as "I/O error: No space left on device (os error 28)"."""
    _, _, after = str(error).rpartition("(os error ")
    number = after.split(")")[0]
    return OSError(int(number), os.strerror(int(number))) if number.isdigit() else OSError(str(error))
