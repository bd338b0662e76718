"""seccomp: the system calls that this process may make, enforced by the Linux kernel without root.

A submission needs to compute, to read and write files that landlock.py grants, and to start threads. Refused is what
starts processes, opens sockets, reaches other processes, changes a file's owner, permissions or times (Landlock does
not see those), or asks the kernel for what only an administrator needs. A call newer than this file's list does not
exist.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from dataclasses import dataclass

from regard.school.sandbox.system import (
    NUMBERS,
    PR_SET_PDEATHSIG,
    call_number,
    lock_privileges,
    machine,
    system_call,
)

ALLOW, ERROR, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, EQUAL, GREATER, AND, RETURN = 0x20, 0x15, 0x25, 0x54, 0x06  # opcodes of the kernel's packet filters
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
LAST = "futex_waitv"  # 449, Linux 5.16

# Like a kernel that does not have them: libraries then use an older call, whose arguments can be looked at.
ABSENT = ("clone3", "openat2")
CLONE_THREAD = 0x00010000
# Is it a terminal, how wide; flags of a descriptor.
TERMINAL = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5450, 0x5451, 0x5421)
SIGNALS_BY_FILE = (8, 10, 15, 1024, 1026)  # F_SETOWN, F_SETSIG, F_SETOWN_EX; F_SETLEASE, F_NOTIFY


@dataclass(frozen=True)
class Condition:
    """A call that depends on one argument: `argument & mask` must be one of `values`, or with `refuse`, must not."""

    call: str
    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    refuse: bool = False
    error: int = errno.EPERM


def conditions(pid: int) -> list[Condition]:
    """The calls that depend on an argument, for the process `pid`."""
    truncating = os.O_TRUNC | os.O_ACCMODE  # reading and truncating is no writing for older Landlocks
    return [
        Condition("clone", 0, (CLONE_THREAD,), mask=CLONE_THREAD),  # threads, no processes
        Condition("kill", 0, (pid,)),
        Condition("tgkill", 0, (pid,)),
        Condition("prlimit64", 0, (0, pid)),
        Condition("sched_setaffinity", 0, (0, pid)),
        Condition("prctl", 0, (PR_SET_PDEATHSIG,), refuse=True),  # it ends when its worker ends
        Condition("fcntl", 1, SIGNALS_BY_FILE, refuse=True),
        Condition("ioctl", 1, TERMINAL, error=errno.ENOTTY),
        Condition("open", 1, (os.O_TRUNC,), mask=truncating, refuse=True),
        Condition("openat", 2, (os.O_TRUNC,), mask=truncating, refuse=True),
    ]


def refused_calls() -> list[str]:
    depends = {condition.call for condition in conditions(0)}
    return [name for name in NUMBERS if name not in {LAST, *ABSENT, *depends}]


Instruction = tuple[int, int, int, int]  # opcode, jump if true, jump if false, constant


def program(machine: str, pid: int) -> list[Instruction]:
    """The filter: a program of the kernel's packet filter machine that gets a system call and returns what to do.

    The process that it is for is `pid`; it may send signals to itself.
    """
    last = call_number(LAST, machine)
    assert last is not None
    lines: list[Instruction] = [
        (LOAD, 0, 0, 4),  # the architecture: the same number is another call in a 32-bit program
        (EQUAL, 1, 0, AUDIT[machine]),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, 0),  # the number of the call
        (GREATER, 0, 1, last),
        (RETURN, 0, 0, ERROR | errno.ENOSYS),
    ]
    for name in (*ABSENT, *refused_calls()):
        if (code := call_number(name, machine)) is not None:
            error = errno.ENOSYS if name in ABSENT else errno.EPERM
            lines += [(EQUAL, 0, 1, code), (RETURN, 0, 0, ERROR | error)]
    for condition in conditions(pid):
        if (code := call_number(condition.call, machine)) is not None:
            check = _check(condition)
            lines += [(EQUAL, 0, len(check), code), *check]
    return [*lines, (RETURN, 0, 0, ALLOW)]


def _check(condition: Condition) -> list[Instruction]:
    match, other = ERROR | condition.error, ALLOW
    if not condition.refuse:
        match, other = other, match
    # Arguments are 64 bits wide, and the kernel takes these as 32: the lower half, which comes first.
    lines: list[Instruction] = [(LOAD, 0, 0, 16 + 8 * condition.argument), (AND, 0, 0, condition.mask)]
    for left, value in zip(range(len(condition.values), 0, -1), condition.values, strict=True):
        lines.append((EQUAL, left, 0, value & 0xFFFFFFFF))
    return [*lines, (RETURN, 0, 0, other), (RETURN, 0, 0, match)]


def restrict_system_calls() -> None:
    """Refuse this process, and its threads to come, what a submission does not need."""
    lines = program(machine(), os.getpid())
    code = b"".join(struct.pack("<HBBI", *line) for line in lines)
    buffer = ctypes.create_string_buffer(code, len(code))
    lock_privileges()  # the kernel asks for it
    # PR_SET_SECCOMP, SECCOMP_MODE_FILTER, and the kernel's struct sock_fprog
    system_call("prctl", 22, 2, struct.pack("@HP", len(lines), ctypes.addressof(buffer)), 0, 0)
