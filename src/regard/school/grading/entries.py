"""The entries of a class folder: what is a submission, and the Python source in it, whatever it was handed in as.

No entry is left out in silence: what the system adds is named as ignored, and what cannot be read has a reason.
"""

from __future__ import annotations

import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from regard.school.sandbox.folders import temporary_folder
from regard.school.sandbox.limits import MiB
from regard.school.sandbox.outcome import printable_text
from regard.school.sandbox.source_text import read_source
from regard.support.vocabulary import is_named_attention

SYSTEM = ("__pycache__", "__macosx", "thumbs.db", "desktop.ini")  # what Python, macOS and Windows add, in lower case
SOURCES = (".py", ".ipynb")
LARGEST_SOURCE = MiB  # bytes of a Python file
LARGEST_FILE = 16 * MiB  # of a notebook, which may hold pictures; of a .zip, and of all that is in it
MOST_FILES = 1000  # of a folder or .zip
LARGEST_RATIO = 200  # of a file in a .zip to what it takes there


class OpenedEntry(NamedTuple):
    """What the sandbox runs: a file, or a file of a folder; and its source."""

    path: Path
    file: str | None
    source: str


def find_submissions(folder: Path) -> tuple[list[Path], list[str]]:
    """Every entry of a folder that somebody handed in, by name; and the names that are ignored."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; give the folder that holds the submissions")
    entries = sorted(folder.iterdir())
    if not (paths := [one for one in entries if not is_ignored(one.name)]):
        raise ValueError(f"{folder} has no submissions: no .py or .ipynb file, no .zip, and no folder with one")
    return paths, [printable_text(one.name, 200) for one in entries if is_ignored(one.name)]


def is_ignored(name: str) -> bool:
    """Is it hidden, or a file that the system adds?

    >>> is_ignored(".DS_Store"), is_ignored("__MACOSX"), is_ignored("ana.py")
    (True, True, False)
    """
    return name.startswith(".") or name.lower() in SYSTEM


@contextmanager
def opened_entry(path: Path, wanted: str = "") -> Iterator[OpenedEntry]:
    """The Python of a submission: a .py or .ipynb file, a folder, or a .zip. A ValueError says why there is none.

    wanted: the file to import, of a folder or .zip that has several.
    """
    with temporary_folder() as scratch:
        file = _file_of(path, wanted)
        if file.suffix.lower() == ".zip":
            path = _unzip(file, scratch / "unzipped")
            file = _file_in(path, wanted, _shown(file))
        if file.suffix.lower() == ".zip":
            raise ValueError(f"{_shown(file)} is a .zip inside a .zip; hand in the Python file")
        data, source = _read(file, scratch)
        if file.suffix == ".py" and source.encode() == data:  # else it is run as it was read
            yield OpenedEntry(path, None if file == path else file.relative_to(path).as_posix(), source)
            return
        copy = scratch / f"{file.stem if file.stem.isidentifier() else 'submission'}.py"
        copy.write_text(source, encoding="utf-8")
        yield OpenedEntry(copy, None, source)


def _file_of(path: Path, wanted: str) -> Path:
    """The file of an entry that is to be read; no link is followed."""
    shown, mode = _shown(path), _mode(path)
    if stat.S_ISLNK(mode):
        raise ValueError(f"{shown} is a symbolic link; a submission is a file or a folder")
    if stat.S_ISDIR(mode):
        return _file_in(path, wanted, shown)
    if not stat.S_ISREG(mode):
        raise ValueError(f"{shown} {'is no file and no folder' if mode else 'does not exist'}")
    if path.suffix.lower() not in (*SOURCES, ".zip"):
        raise ValueError(f"{shown} is no .py, .ipynb or .zip file and no folder; rename it, or move it elsewhere")
    return path


def _file_in(folder: Path, wanted: str, shown: str) -> Path:
    """The Python file or notebook of a folder: that which defines attention, as high up as there is any; else its .zip.

    main.py beside package/attention.py is not the one. Where none defines attention, it is that which is highest up.
    """
    level, zips, count, first = [folder], list[Path](), 0, list[Path]()
    while level:
        entries = [(one, _mode(one)) for here in level for one in _listed(here, shown)]
        if (count := count + len(entries)) > MOST_FILES:
            raise ValueError(f"{shown} has more than {MOST_FILES} files; hand in the Python file alone")
        files = [path for path, mode in entries if stat.S_ISREG(mode)]
        found = [path for path in files if _is_wanted(path, folder, wanted)]
        if best := found if wanted else list(filter(_defines_attention, found)):
            return best[0] if len(best) == 1 else _only(found, shown)
        first = first or found
        zips += [path for path in files if path.suffix.lower() == ".zip"]
        level = [path for path, mode in entries if stat.S_ISDIR(mode)]
    if first:
        return _only(first, shown)
    if len(zips) == 1:
        return zips[0]
    raise ValueError(f"{shown} has no {wanted or 'Python file and no notebook'}; hand in a .py or .ipynb file")


def _is_wanted(path: Path, folder: Path, wanted: str) -> bool:
    if wanted:
        return wanted in (path.name, path.relative_to(folder).as_posix())
    return path.suffix.lower() in SOURCES


def _defines_attention(file: Path) -> bool:
    """Has it a class or function that is named attention, and is no test of one?"""
    return any(is_named_attention(name) for name in _defined(file) if not name.lower().startswith("test"))


def _defined(file: Path) -> list[str]:
    """The names of the classes and functions of a file, as its text has them; none where it cannot be read."""
    try:
        if file.stat().st_size > LARGEST_SOURCE:
            return []
        return re.findall(r"(?m)^(?:class|def)\s+(\w+)", read_source(file))
    except (OSError, ValueError):
        return []


def _only(found: list[Path], shown: str) -> Path:
    if len(found) > 1:
        names = ", ".join([*map(_shown, found[:3]), *["…"] * (len(found) > 3)])
        raise ValueError(f"{shown} has {len(found)} Python files ({names}); name the one: file = … in the key")
    return found[0]


def _listed(folder: Path, shown: str) -> list[Path]:
    try:
        return sorted(folder / name for name in os.listdir(folder) if not is_ignored(name))
    except OSError as error:
        raise ValueError(f"{shown} cannot be read: {error.strerror}") from None


def _read(file: Path, scratch: Path) -> tuple[bytes, str]:
    """The bytes of a file, and its source; NAME.PY is a Python file, too."""
    shown, suffix = _shown(file), file.suffix.lower()
    most = LARGEST_SOURCE if suffix == ".py" else LARGEST_FILE
    try:
        if (size := file.stat().st_size) > most:
            raise ValueError(f"{shown} has {size} bytes; at most {most}")
        data = file.read_bytes()
        if file.suffix != suffix:
            file = scratch / f"copy{suffix}"
            file.write_bytes(data)
        source = read_source(file)
        source.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{shown} holds halves of characters, which no text has; save it as UTF-8") from None
    except OSError as error:
        raise ValueError(f"{shown} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(str(error).replace(str(file), shown)) from None
    if len(source) > LARGEST_SOURCE:
        raise ValueError(f"{shown} has {len(source)} characters of Python; at most {LARGEST_SOURCE}")
    return data, source


def _unzip(path: Path, folder: Path) -> Path:
    """Write the files of a .zip to a new folder; ValueError where it is too large, leads elsewhere or has links."""
    shown = _shown(path)
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{shown} has {path.stat().st_size} bytes; at most {LARGEST_FILE}; hand in the Python file")
    folder.mkdir()
    left = LARGEST_FILE
    try:
        with zipfile.ZipFile(path) as archive:
            if len(archive.infolist()) > MOST_FILES:
                raise ValueError(f"{shown} has more than {MOST_FILES} files; hand in the Python file alone")
            for one in archive.infolist():
                parts = PurePosixPath(one.filename).parts
                _check_member(one, parts, shown)
                if one.is_dir() or any(map(is_ignored, parts)):
                    continue
                with archive.open(one) as file:
                    data = file.read(left + 1)  # what a header says of the size may be wrong
                left -= len(data)
                if left < 0:
                    raise ValueError(f"{shown} holds more than {LARGEST_FILE} bytes; hand in the Python file alone")
                target = folder.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
    except Exception as error:  # BadZipFile, zlib.error, UnicodeDecodeError …: whatever damaged headers lead to
        if type(error) is ValueError:
            raise
        raise ValueError(f"{shown} cannot be opened: {error}; hand in the Python file") from None
    return folder


def _check_member(one: zipfile.ZipInfo, parts: tuple[str, ...], shown: str) -> None:
    name = printable_text(one.filename, 80)
    if not parts or ".." in parts or parts[0].startswith("/") or "\\" in one.filename or ":" in parts[0]:
        raise ValueError(f"{shown} has a file outside of its folder, {name}; it was not opened")
    if stat.S_ISLNK(one.external_attr >> 16):
        raise ValueError(f"{shown} has a link, {name}; it was not opened")
    if one.flag_bits & 1:
        raise ValueError(f"{shown} has a password; hand it in without one")
    if one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{shown} is packed in an unusual way; zip it again, or hand in the Python file")
    if one.file_size > LARGEST_RATIO * max(one.compress_size, 1):
        raise ValueError(f"{shown} has a file that grows {LARGEST_RATIO} times and more, {name}; it was not opened")


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _shown(path: Path) -> str:
    return printable_text(path.name, 200)
