"""Atomic writing: a file is replaced completely or not at all, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that need no torch write files too
    from torch import Tensor

ABANDONED = 600  # seconds after which a temporary file is taken to be a killed process's


class NotWritten(OSError):
    """A file could not be written; the old one is untouched."""


@contextmanager
def atomically(path: Path | str) -> Iterator[Path]:
    """Replace a file atomically: write to the temporary path this gives, and it is renamed at the end.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with atomically(path) as temporary:
    ...     _ = temporary.write_text("all of it")
    >>> path.read_text()
    'all of it'

    The temporary file is in the same directory. It is flushed to the disk (fsync) before it is renamed, and so is the
    directory after it. If anything fails, it is removed and the old file is untouched; a full disk or a missing
    permission raises NotWritten, which says so. The temporary file of a killed process is removed by the next write.
    """
    path = Path(path)
    if path.is_dir():
        raise _not_written(path, OSError(errno.EISDIR, ""))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        _remove_abandoned(path, temporary)
        yield temporary
        temporary.chmod(mode)  # safetensors creates files that only their owner may read
        _sync(temporary)
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        ours = (None, str(temporary), temporary)  # else another file's failure
        if isinstance(error, OSError) and not isinstance(error, NotWritten) and error.filename in ours:
            raise _not_written(path, error) from error
        raise
    _sync_directory(path.parent)


def check_writable(path: Path | str, flag: str = "") -> None:
    """Refuse a file that cannot be written, before the work whose result it is to hold; flag: what the person typed."""
    path = Path(path)
    said = f"{flag} {path}".strip()
    if not path.parent.is_dir():
        raise ValueError(f"{said}: {path.parent} is no folder; make it first")
    if path.is_dir():
        raise ValueError(f"{said}: a folder has that name; choose another")
    trial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.trial")
    try:
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as error:
        raise ValueError(f"{said} cannot be written: {error.strerror}; choose another place") from None


def write_safetensors(
    path: Path | str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a safetensors file, atomically."""
    with atomically(path) as temporary:
        write_and_sync(temporary, tensors, metadata)


def write_and_sync(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a new file, such as the temporary one of `atomically`, and flush it to the disk."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(contiguous, path, None if metadata is None else dict(metadata))
    except SafetensorError as error:  # its only error: "I/O error: No space left on device (os error 28)"
        if found := re.search(r"\(os error (\d+)\)", str(error)):
            raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
        raise OSError(str(error)) from error
    _sync(path)


def _remove_abandoned(path: Path, temporary: Path) -> None:
    now = temporary.stat().st_mtime  # by the clock of the file system, which may be remote
    for old in path.parent.glob(f".{escape(path.name)}.*.partial"):
        with suppress(OSError):  # another process may have removed it
            if now - old.stat().st_mtime > ABANDONED:
                old.unlink()


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    if os.name != "posix":  # on Windows a directory cannot be opened
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # not supported by some network file systems
            raise
    finally:
        os.close(handle)


def _not_written(path: Path, error: OSError) -> NotWritten:
    """The same error, with the file, the reason and the remedy."""
    reason = {
        errno.ENOSPC: "the disk is full; free some space and save again",
        errno.EDQUOT: "your disk quota is used up; free some space and save again",
        errno.EFBIG: "the file would be larger than is allowed here; raise the limit or save elsewhere",
        errno.EROFS: "the disk is read-only; save elsewhere",
        **dict.fromkeys((errno.EACCES, errno.EPERM), "that is not permitted; save where you may write"),
        errno.ENOENT: "its directory is missing; make it first",
        errno.ENOTDIR: f"{path.parent} is no directory; save elsewhere",
        errno.EISDIR: "a directory has that name; save elsewhere",
    }.get(error.errno or 0, error.strerror or str(error))
    message = f"{path} could not be written: {reason}. What was there before is untouched."
    return NotWritten(error.errno, message) if error.errno else NotWritten(message)


def is_local(model: str) -> bool:
    """Can this name of a model only be a directory? Names on the hub have at most one slash.

    >>> is_local("runs/first/model"), is_local("openai-community/gpt2")
    (True, False)
    """
    return (
        os.path.isabs(model)
        or model.startswith((".", "~"))
        or model.endswith("/")
        or model.count("/") > 1
        or (os.sep != "/" and os.sep in model)
    )
