"""The one folder that a submission may write: how much is in it, and removing it whatever is in it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder, removed at the end.

    >>> with temporary_folder() as folder:
    ...     (folder / "notes.txt").write_text("seven")
    5
    >>> folder.exists()
    False
    """
    folder = Path(tempfile.mkdtemp(prefix="regard-"))
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_folder(folder: Path | str) -> None:
    """Remove a folder that somebody else filled, when nothing writes to it any more.

    Unlike shutil.rmtree, it removes folders nested too deep for a path or for recursion (what is in a folder is moved up
    before the folder is removed), and folders whose permissions were taken away.
    """
    number = 0
    while names := os.listdir(folder):
        for name in names:
            path = os.path.join(folder, name)
            if not _is_folder(path):
                os.unlink(path)
                continue
            os.chmod(path, 0o700)
            for inner in os.listdir(path):
                source = os.path.join(path, inner)
                if _is_folder(source):
                    os.chmod(source, 0o700)  # moving a folder changes its ".."
                number += 1
                while os.path.lexists(target := os.path.join(folder, f"moved-{number}")):
                    number += 1
                os.rename(source, target)
            os.rmdir(path)
    os.rmdir(folder)


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


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
