"""Linux system calls: making those that Python has no function for, and refusing those that no submission needs.

Numbers differ between processors: every call that is named here is in the table, for x86-64 and for 64-bit ARM. The
kernel refuses by seccomp, without root. A submission needs to compute, to read and write files that landlock.py grants,
and to start threads. Refused is what starts processes, opens sockets, reaches other processes, changes a file's owner,
permissions or times (Landlock does not see those), makes all disks of the system write (sync), or asks the kernel for
what only an administrator needs. A call newer than the table does not exist.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from dataclasses import dataclass
from functools import cache

# Name, number on x86_64, number on aarch64; - where it lacks the older of two calls that do the same.
_TABLE = """
acct 163 89, add_key 248 217, adjtimex 159 171, bpf 321 280, capset 126 91, chmod 90 -, chown 92 -,
chroot 161 51, clock_adjtime 305 266, clock_settime 227 112, clone 56 220, clone3 435 435, delete_module 176 106,
execve 59 221, execveat 322 281, fanotify_init 300 262, fchmod 91 52, fchmodat 268 53, fchown 93 55,
fchownat 260 54, fcntl 72 25, finit_module 313 273, fork 57 -, fremovexattr 199 16, fsconfig 431 431,
fsetxattr 190 7, fsmount 432 432, fsopen 430 430, fspick 433 433, futex_waitv 449 449, futimesat 261 -,
init_module 175 105, inotify_add_watch 254 27, inotify_init 253 -, inotify_init1 294 26, io_setup 206 0,
io_uring_enter 426 426, io_uring_register 427 427, io_uring_setup 425 425, ioctl 16 29, ioperm 173 -, iopl 172 -,
ioprio_set 251 30, kcmp 312 272, kexec_file_load 320 294, kexec_load 246 104, keyctl 250 219, kill 62 129,
landlock_add_rule 445 445, landlock_create_ruleset 444 444, landlock_restrict_self 446 446, lchown 94 -,
lremovexattr 198 15, lsetxattr 189 6, memfd_create 319 279, memfd_secret 447 447, migrate_pages 256 238,
modify_ldt 154 -, mount 165 40, mount_setattr 442 442, move_mount 429 429, move_pages 279 239, mq_open 240 180,
mq_unlink 241 181, msgctl 71 187, msgget 68 186, msgrcv 70 188, msgsnd 69 189, name_to_handle_at 303 264,
nfsservctl 180 42, open 2 -, open_by_handle_at 304 265, open_tree 428 428, openat 257 56, openat2 437 437,
perf_event_open 298 241, personality 135 92, pidfd_getfd 438 438, pidfd_open 434 434, pidfd_send_signal 424 424,
pivot_root 155 41, prctl 157 167, prlimit64 302 261, process_madvise 440 440, process_mrelease 448 448,
process_vm_readv 310 270, process_vm_writev 311 271, ptrace 101 117, quotactl 179 60, quotactl_fd 443 443,
reboot 169 142, removexattr 197 14, request_key 249 218, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240,
sched_setaffinity 203 122, sched_setattr 314 274, sched_setparam 142 118, sched_setscheduler 144 119,
semctl 66 191, semget 64 190, semop 65 193, semtimedop 220 192, setdomainname 171 162, sethostname 170 161,
setns 308 268, setpriority 141 140, settimeofday 164 170, setxattr 188 5, shmat 30 196, shmctl 31 195,
shmget 29 194, socket 41 198, socketpair 53 199, swapoff 168 225, swapon 167 224, sync 162 81,
syncfs 306 267, syslog 103 116, tgkill 234 131,
tkill 200 130, truncate 76 45, umount2 166 39, unshare 272 97, uselib 134 -, userfaultfd 323 282, utime 132 -,
utimensat 280 88, utimes 235 -, vfork 58 -, vhangup 153 58
"""
NUMBERS: dict[str, tuple[int | None, ...]] = {
    name: tuple(None if one == "-" else int(one) for one in numbers)
    for name, *numbers in map(str.split, _TABLE.split(","))
}
MACHINES = ("x86_64", "aarch64")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

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


@cache
def machine() -> str:
    """The processor's name, if its system calls are in the table; OSError otherwise."""
    name = platform.machine().lower()
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)
    if not sys.platform.startswith("linux") or name not in MACHINES or sys.maxsize < 2**32:
        raise OSError(f"needs 64-bit Linux on {' or '.join(MACHINES)}, this is {sys.platform} on {name}")
    return name


def call_number(name: str, machine: str) -> int | None:
    return NUMBERS[name][MACHINES.index(machine)]


def system_call(name: str, *arguments: object) -> int:
    code = call_number(name, machine())
    if code is None:
        raise OSError(f"{machine()} has no system call {name}")
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(_libc().syscall(ctypes.c_long(code), *wide))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def process_control(option: int, value: int) -> None:
    system_call("prctl", option, value, 0, 0, 0)


def lock_privileges() -> None:
    """No program that this process runs has more privileges than it has now."""
    process_control(38, 1)  # PR_SET_NO_NEW_PRIVS


def drop_privileges() -> None:
    """Give up every capability, which only root has, gain none by running programs, and leave no core dump."""
    lock_privileges()
    process_control(4, 0)  # PR_SET_DUMPABLE: a limit of 0 for core dumps does not hold for programs that receive them
    system_call("capset", struct.pack("=Ii", 0x20080522, 0), bytes(24))  # version and process; no capability


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


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
