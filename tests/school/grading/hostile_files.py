"""Names and kinds of files that attack the grader."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

from school.grading.hostile_layers import layer, thief

NAMES = [
    "=cmd|'-c calc'!A1", "+1+1", "-1+1", "@SUM(A1)", "a;=1+1", 'a",=1+1', "a\t=1+1", "a\r=1+1", "a\n=1+1", "\t=1", " "
    "=1",
    "\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "\x9b31m", "<script>alert(1)<!--", "<img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "\u202egpj", "e" + "\u0301" * 90, "\ufeffbom", "\u2028line", "long" * 60, "%s%n{0}{x!r}", "$(touch x)", "`touch x`",
    "a'; drop table", "--csv=x", "-rf", "a b  c", "ünïcödé-ß-中文", "\udcff\udcfe", "regard", "torch", "con", "a..b",
    "a\\b", "*", "?", "[a-z]", "~", "null\\0", "a.py", "__init__x", "\uff1d1+1", "'=1+1", '"=1+1"',
    "a\x00b".replace("\x00", "%00"),
]  # fmt: skip


def _folder(name: str, files: dict[str, str]) -> Callable[[Path, Path], None]:
    def make(folder: Path, _: Path) -> None:
        for file, text in files.items():
            path = folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return make


def _entry(name: str, make: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    """A folder whose only Python file is something else."""

    def make_it(folder: Path, victim: Path) -> None:
        (folder / name).mkdir()
        make(folder / name / "homework.py", victim)

    return make_it


def _bytes(name: str, data: bytes) -> Callable[[Path, Path], None]:
    return lambda folder, _: (folder / name).write_bytes(data) and None


def _link(name: str, to: str) -> Callable[[Path, Path], None]:
    return lambda folder, victim: (folder / name).symlink_to(to.replace("VICTIM", str(victim)))


def _socket(folder: Path, _: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("socket.py")
    finally:
        os.fchdir(here)
        os.close(here)


def _sparse(folder: Path, _: Path) -> None:
    with (folder / "sparse.py").open("wb") as file:
        file.truncate(20 << 30)


def _device(folder: Path, _: Path) -> None:
    if os.geteuid() == 0:
        os.mknod(folder / "device.py", 0o020666, os.makedev(1, 5))  # /dev/zero
    else:
        (folder / "device.py").symlink_to("/dev/zero")


def _closed(folder: Path, _: Path) -> None:
    (folder / "closed.py").write_text(layer())
    (folder / "closed.py").chmod(0)


def _closed_folder(folder: Path, _: Path) -> None:
    (folder / "closed").mkdir()
    (folder / "closed" / "homework.py").write_text(layer())
    (folder / "closed").chmod(0o600)


def _deep(folder: Path, _: Path) -> None:
    path = folder / "deep"
    for _number in range(60):
        path = path / "d"
    path.mkdir(parents=True)
    (folder / "deep" / "homework.py").write_text(layer())


def _odd_inside(folder: Path, victim: Path) -> None:
    one = folder / "odd_inside"
    one.mkdir()
    (one / "homework.py").write_text(
        thief("open(os.path.dirname(__file__) + '/key').read(); os.listdir(os.path.dirname(__file__) + '/up')")
    )
    (one / "key").symlink_to(victim / "file")
    (one / "up").symlink_to("..")
    os.mkfifo(one / "fifo")
    os.close(os.open(os.fsencode(one) + b"/\xff\x1b\n", os.O_CREAT))


# Entries of the class folder that are no plain files; each gets the folder, and one with files that it must not read.
ODD_FILES: dict[str, Callable[[Path, Path], None]] = {
    "fifo.py": lambda folder, _: os.mkfifo(folder / "fifo.py"),
    "socket.py": _socket,
    "device.py": _device,
    "sparse.py": _sparse,
    "closed.py": _closed,
    "closed": _closed_folder,
    "link.py": _link("link.py", "VICTIM/right.py"),
    "passwords.py": _link("passwords.py", "/etc/passwd"),
    "zero.py": _link("zero.py", "/dev/zero"),
    "dangling.py": _link("dangling.py", "VICTIM/nothing"),
    "loop.py": _link("loop.py", "loop.py"),
    "linked": _link("linked", "VICTIM"),
    "root.py": _link("root.py", "/"),
    "empty.py": _bytes("empty.py", b""),
    "large.py": _bytes("large.py", b"#" * (5 << 20)),
    "latin.py": _bytes("latin.py", b"# \xff\xfe\n" + layer().encode()),
    "wide.py": _bytes("wide.py", layer().encode("utf-16")),
    "bom.py": _bytes("bom.py", b"\xef\xbb\xbf" + layer().encode()),
    "null.py": _bytes("null.py", layer().encode() + b"\0"),
    "returns.py": _bytes("returns.py", layer().replace("\n", "\r").encode()),
    "coding.py": _bytes("coding.py", b"# coding: utf-7\n+AGkAbQBwAG8AcgB0 os\n"),
    "escapes.py": _bytes("escapes.py", b"x = '\x1b[31m\x9b\xc2\x9b'\n" + layer().encode()),
    "folder.py": lambda folder, _: (folder / "folder.py").mkdir(),
    "two": _folder("two", {"a.py": layer(), "b.py": layer()}),
    "package": _folder("package", {"__init__.py": layer()}),
    "torch_inside": _folder("torch_inside", {"torch/__init__.py": "", "homework.py": layer()}),
    "modules_inside": _folder("modules_inside", {"json/__init__.py": "raise SystemExit", "homework.py": "import json\n"
    "" + layer()}),
    "entry_is_a_link": _entry("entry_is_a_link", lambda path, victim: path.symlink_to(victim / "right.py")),
    "entry_is_a_loop": _entry("entry_is_a_loop", lambda path, _: path.symlink_to("homework.py")),
    "entry_is_a_fifo": _entry("entry_is_a_fifo", lambda path, _: os.mkfifo(path)),
    "entry_is_a_folder": _entry("entry_is_a_folder", lambda path, _: path.mkdir()),
    "deep": _deep,
    "odd_inside": _odd_inside,
}  # fmt: skip
