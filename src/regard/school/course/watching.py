"""Watching files for new content, by looking at them: works in every folder, on network drives, and under any editor.

An editor may write a file in place, or write another one and rename it. Either way a file counts as saved when it has
stopped changing, and only if its content is not what was seen last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

EVERY = 0.05  # seconds between two looks
Signature = tuple[int, int, int] | None  # time of change, size and inode; None where there is no file


class SavedFiles:
    """Tells which files were saved with new content. Call `saved()` every 0.05 s."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths, self._contents = dict(paths), dict[str, bytes]()
        self._seen, self._settled = dict[str, Signature](), dict[str, Signature]()
        for name in paths:
            self.note(name)

    def saved(self) -> list[str]:
        """The names of files that have new content and were not written to since the last look."""
        result = []
        for name, path in self._paths.items():
            before, now = self._seen[name], _signature(path)
            self._seen[name] = now
            if now is None or now != before or now == self._settled[name]:
                continue
            self._settled[name] = now
            content = _digest(path)
            if content and content != self._contents[name]:
                self._contents[name] = content
                result.append(name)
        return result

    def note(self, name: str) -> None:
        """Take the content of a file as seen, because it is about to be checked."""
        self._seen[name] = self._settled[name] = _signature(self._paths[name])
        self._contents[name] = _digest(self._paths[name])


def _signature(path: Path) -> Signature:
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return None


def _digest(path: Path) -> bytes:
    with suppress(OSError):
        return hashlib.sha256(path.read_bytes()).digest()
    return b""
