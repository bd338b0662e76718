"""Landlock: the files that this process may read and write, enforced by the Linux kernel without root.

What is not granted is refused, for good, in this process and in all that it starts. Landlock does not hide that a file
exists, and knows nothing of permissions or times of files: changing those is refused by system_calls.py.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from regard.school.sandbox.system_calls import lock_privileges, system_call

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
READ = READ_FILE | READ_DIR
WRITE = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER | TRUNCATE
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
DEVICES = dict.fromkeys(("/dev/zero", "/dev/random", "/dev/urandom"), READ_FILE) | {"/dev/null": READ_FILE | WRITE_FILE}

Grant = tuple[str, int]  # a path, and what may be done with it and below it


def landlock_version() -> int:
    """What the kernel's Landlock can do: 1 (Linux 5.13) files, 3 (6.2) truncating, 4 (6.7) TCP, 6 (6.12) signals."""
    return system_call("landlock_create_ruleset", None, 0, 1)


def restrict_files(grants: Iterable[Grant], version: int | None = None) -> None:
    """Refuse this process every file that is not granted, every TCP port, and signals to processes outside."""
    version = landlock_version() if version is None else version  # or an older one, for tests
    handled = (1 << 13) - 1
    for since, access in ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)):
        handled |= access if version >= since else 0
    attributes = [handled, *[0b11] * (version >= 4), *[0b11] * (version >= 6)]  # files, network, signals
    rules = struct.pack(f"={len(attributes)}Q", *attributes)  # the kernel's struct landlock_ruleset_attr
    ruleset = system_call("landlock_create_ruleset", rules, len(rules), 0)
    try:
        for path, access in grants:
            with suppress(FileNotFoundError):  # gone since it was listed
                _grant(ruleset, path, access & handled)
        lock_privileges()  # the kernel asks for it
        system_call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def read_grants(roots: Iterable[str | Path], hidden: Iterable[str | Path] = ()) -> list[Grant]:
    """Grants to read everything below `roots` except what is hidden.

    Landlock only grants, with all that is below. So a folder with something hidden in it is granted entry by entry; the
    names in it can still be listed.
    """
    out_of_sight = {os.path.realpath(path) for path in hidden if os.path.lexists(path)}
    grants: dict[str, int] = {}

    def visit(path: str) -> None:
        path = os.path.realpath(path)
        if path in grants or path in out_of_sight:
            return
        if not any(other.startswith(path.rstrip("/") + "/") for other in out_of_sight):
            if os.path.exists(path):
                grants[path] = READ
        elif os.path.isdir(path):
            grants[path] = READ_DIR
            for entry in os.scandir(path):
                # What a link leads to is granted where it is, or not at all.
                if not entry.is_symlink():
                    visit(entry.path)

    for root in roots:
        visit(os.fspath(root))
    return list(grants.items())


def _grant(ruleset: int, path: str, access: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mode = os.fstat(parent).st_mode
        if stat.S_ISLNK(mode):
            raise OSError(f"{path} is a symbolic link; grant what it leads to")
        access &= -1 if stat.S_ISDIR(mode) else OF_A_FILE
        rule = struct.pack("=Qi", access, parent)  # the kernel's struct landlock_path_beneath_attr
        system_call("landlock_add_rule", ruleset, 1, rule, 0)
    finally:
        os.close(parent)
