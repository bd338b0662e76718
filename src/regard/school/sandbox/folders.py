"""The one folder that a submission may write: how much is in it, and removing it whatever is in it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEMORY = "/dev/shm"  # a file system in memory, where Linux has one: disks can need seconds to remove many files


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix=f"regard-{os.getpid()}-", dir=_parent()))
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_left_by(pid: int) -> None:
    """Remove the folders that a process made and left, because it was killed."""
    for folder in Path(_parent()).glob(f"regard-{pid}-*"):
        for _ in range(100):  # what wrote there is being ended
            if not folder.exists():
                break
            try:
                remove_folder(folder)
            except OSError:
                time.sleep(0.05)


def _parent() -> str:
    return MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else tempfile.gettempdir()


def remove_folder(folder: Path | str) -> None:
    """Remove a folder that somebody else filled, when nothing writes to it any more.

    Unlike shutil.rmtree, it removes folders nested too deep for recursion or for open files, and folders whose
    permissions were taken away. It goes down one folder and up one folder at a time, and follows no links.
    """
    parent, name = os.path.split(os.path.abspath(folder))
    here = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    path, left = list[str](), [[name]]  # the folders that it is in, and in each of them the folders to be removed
    try:
        while left[0] or path:
            if left[-1]:
                path.append(left[-1].pop())
                here = _go(here, path[-1])
                left.append(_remove_files(here))
            else:
                here = _go(here, "..")
                os.rmdir(path.pop(), dir_fd=here)
                left.pop()
    finally:
        os.close(here)


def _go(here: int, name: str) -> int:
    """From an open folder to the one of that name; the first is closed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        there = os.open(name, flags, dir_fd=here)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=here)
        there = os.open(name, flags, dir_fd=here)
    os.close(here)
    return there


def _remove_files(folder: int) -> list[str]:
    """Remove what is no folder from an open folder; the names of the folders in it."""
    os.fchmod(folder, 0o700)
    with os.scandir(folder) as scan:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan]
    for name, is_folder in entries:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in entries if is_folder]


def measure_folder(folder: Path | str, most: int) -> tuple[int, int]:
    """Bytes and entries in a folder; counting stops after `most` entries. The folder may change meanwhile."""
    size = entries = 0
    todo = [os.fspath(folder)]
    while todo and entries <= most:
        with suppress(OSError), os.scandir(todo.pop()) as scan:  # a folder may be gone or unreadable
            for entry in scan:
                entries += 1
                if entries > most:
                    break
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
    return size, entries
