"""Hashes of what a run has written, so that damage is noticed when the run resumes.

A checkpoint carries the hash of its own content. The finished files beside it (tokenizer.json, and those in best/ and
model/) have theirs in hashes.json. A kill between a file and its hash must not look like damage: the hashes of files
that are about to be replaced are removed first and stored again once all of them are on the disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.support.files import atomically

HASHES = "hashes.json"
PART = 1 << 23  # bytes that one thread hashes: sha256 runs without the interpreter's lock


def hash_file_in_parts(path: Path) -> str:
    """A hash of a large file by several threads: the sha256 of the sha256 of each part."""

    def hash_part(at: int) -> bytes:
        with path.open("rb") as file:
            file.seek(at)
            return hashlib.sha256(file.read(PART)).digest()

    with ThreadPoolExecutor(16) as pool:
        parts = pool.map(hash_part, range(0, path.stat().st_size, PART))
        return hashlib.sha256(b"".join(parts)).hexdigest()


def hash_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """One hash of names, dtypes, shapes and bytes of tensors, and of their metadata; the order does not matter."""
    with ThreadPoolExecutor(16) as pool:  # every tensor is handed out before the first is waited for
        rows = []
        for name, tensor in sorted(tensors.items()):
            parts = torch.split(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8), PART)
            digests = pool.map(lambda part: hashlib.sha256(part.numpy().data).hexdigest(), parts)
            rows.append([name, str(tensor.dtype), list(tensor.shape), digests])
        rows = [[*described, list(digests)] for *described, digests in rows]
    return _hash_json([sorted(metadata.items()), rows])


@dataclass
class FileHashes:
    """What hashes.json holds: the hash of each finished file, and which step best/ was written at."""

    out: Path
    files: dict[str, str] = field(default_factory=dict)  # path in the run's directory → hash
    best: dict[str, Any] = field(default_factory=dict)  # val_loss and step of the model in best/

    @staticmethod
    def read(out: Path) -> FileHashes:
        """The hashes of a run, none where there is no hashes.json. A damaged one is a ValueError."""
        path = out / HASHES
        check_types(out, [HASHES])
        if not path.exists():
            return FileHashes(out)
        with suppress(ValueError, KeyError, AttributeError, TypeError, RecursionError):
            content = json.loads(path.read_bytes())
            if content.pop("sha256") == _hash_json(content):
                return FileHashes(out, content["files"], content["best"])
        problem = f"{path} is damaged: its content does not have the hash that is stored in it"
        remedy = f"remove it: the run then resumes, and {out / 'best'} and {out / 'model'} are not checked"
        raise ValueError(f"{problem}; restore it from a copy, or {remedy}")

    def forget(self, name: str) -> None:
        """Remove the hashes of a file, or of all files in a directory, before they are replaced."""
        kept = {path: digest for path, digest in self.files.items() if path not in self.recorded(name)}
        if kept != self.files or not (self.out / HASHES).exists():
            self.files = kept
            self._write()

    def record(self, name: str) -> None:
        """Store the hashes of a file, or of all files in a directory, once they are on the disk."""
        path = self.out / name
        found = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file() and p.name[0] != ".")
        self.files |= {str(p.relative_to(self.out).as_posix()): hash_file_in_parts(p) for p in found}
        self._write()

    def changed(self, name: str) -> list[str]:
        """The files whose content is no longer what was recorded, or which are missing."""
        paths = ((path, self.out / path) for path in self.recorded(name))
        return [path for path, file in paths if not (file.is_file() and hash_file_in_parts(file) == self.files[path])]

    def recorded(self, name: str) -> list[str]:
        """The files with a hash: one file, or those of a directory."""
        return [path for path in self.files if path == name or path.startswith(f"{name}/")]

    def _write(self) -> None:
        content = {"files": self.files, "best": self.best}
        with atomically(self.out / HASHES) as temporary:
            temporary.write_text(json.dumps(content | {"sha256": _hash_json(content)}, indent=1) + "\n")


def check_types(out: Path, names: Iterable[str]) -> None:
    """Each of these must be a file, or not be there: a directory or a pipe of its name could not be replaced."""
    for name in names:
        path = out / name
        if (path.exists() or path.is_symlink()) and not path.is_file():
            kind = "directory" if path.is_dir() else "dead link" if path.is_symlink() else "pipe or device"
            raise ValueError(f"{path} must be a file of this run, but is a {kind}; move it away, then resume")


def _hash_json(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
