"""System calls: numbers as in the kernel headers; the filter, run by an interpreter of our own and by the kernel."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from regard.school.sandbox.system_calls import (
    ABSENT,
    ALLOW,
    AND,
    AUDIT,
    EQUAL,
    ERROR,
    GREATER,
    KILL,
    LAST,
    LOAD,
    MACHINES,
    NUMBERS,
    RETURN,
    call_number,
    machine,
    program,
    refused_calls,
    system_call,
)

HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), r"#define __NR_(\w+)\s+(\d+)"),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"), r"#define __NR(?:3264)?_(\w+)\s+(\d+)"),
}
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


@pytest.mark.parametrize("name", MACHINES)
def test_every_number_is_that_of_the_kernel_headers(name):
    header, pattern = HEADERS[name]
    if not header.is_file():
        pytest.skip("needs the kernel's headers")
    kernel = {call: int(code) for call, code in re.findall(pattern, header.read_text())}
    assert {call: call_number(call, name) for call in NUMBERS} == {call: kernel.get(call) for call in NUMBERS}


@pytest.mark.parametrize("column", range(len(MACHINES)))
def test_no_number_is_used_twice(column):
    numbers = [pair[column] for pair in NUMBERS.values() if pair[column] is not None]
    assert len(numbers) == len(set(numbers))


@linux
def test_a_call_that_fails_is_an_error_with_its_name():
    with pytest.raises(OSError, match="pidfd_open: ") as caught:
        system_call("pidfd_open", -1, 0)
    assert caught.value.errno == errno.EINVAL


@linux
def test_a_processor_without_a_table_is_an_error(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    machine.cache_clear()
    with pytest.raises(OSError, match="needs 64-bit Linux on x86_64 or aarch64, this is linux on riscv64"):
        machine()
    machine.cache_clear()


@linux
def test_dropped_privileges_are_gone_for_root_too():
    code = (
        "from regard.school.sandbox.system_calls import drop_privileges; drop_privileges()\n"
        "print([l.split()[1] for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapPrm', 'NoNewPrivs'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(["0" * 16, "0" * 16, "1"])


PID = 4242
both = pytest.mark.parametrize("processor", MACHINES)


def answer(processor: str, code: int, *arguments: int, audit: int | None = None) -> int:
    """What the filter says to a system call: the kernel's packet filter machine, as far as the filter uses it."""
    words = {0: code, 4: AUDIT[processor] if audit is None else audit}
    for index, value in enumerate(arguments):
        words[16 + 8 * index] = value & 0xFFFFFFFF
    lines, at, register = program(processor, PID), 0, 0
    while True:
        op, yes, no, constant = lines[at]
        at += 1
        if op == RETURN:
            return constant
        if op == LOAD:
            register = words.get(constant, 0)
        elif op == AND:
            register &= constant
        elif op == EQUAL:
            at += yes if register == constant else no
        else:
            assert op == GREATER
            at += yes if register > constant else no


def says(processor: str, call: str, *arguments: int) -> object:
    """True if a call is allowed, otherwise its error."""
    code = call_number(call, processor)
    result = None if code is None else answer(processor, code, *arguments)
    return True if result == ALLOW else None if result is None else errno.errorcode[result & ~ERROR]


@both
def test_calls_of_the_list_are_refused_whatever_their_arguments(processor):
    assert len(refused_calls()) > 90
    for call in refused_calls():
        assert says(processor, call) in ("EPERM", None), call
        assert says(processor, call, 1, 2, 3) == says(processor, call)


@both
def test_most_calls_are_allowed(processor):
    listed = {call_number(call, processor) for call in NUMBERS}
    last = call_number(LAST, processor)
    allowed = [code for code in range(last + 1) if answer(processor, code) == ALLOW]
    assert set(range(last + 1)) - listed <= set(allowed)
    assert len(allowed) > 200


@both
def test_calls_newer_than_the_list_do_not_exist(processor):
    for code in (call_number(LAST, processor) + 1, 1000, 0x40000000 + 41, 0xFFFFFFFF):  # the third is a socket by x32
        assert answer(processor, code) == ERROR | errno.ENOSYS
    for call in ABSENT:
        assert says(processor, call) == "ENOSYS"


@both
def test_a_32_bit_program_is_killed(processor):
    assert answer(processor, 0, audit=0x40000003) == KILL


@both
@pytest.mark.parametrize(
    ("call", "arguments", "result"),
    [
        ("clone", (0x3D0F00,), True),  # what glibc asks for to start a thread
        ("clone", (0x1200011,), "EPERM"),  # and to fork
        ("clone", (0x10000000,), "EPERM"),  # a namespace
        ("kill", (PID, 9), True),
        ("kill", (PID + 1, 9), "EPERM"),
        ("kill", (0, 9), "EPERM"),
        ("kill", (-1, 9), "EPERM"),
        ("kill", (-PID, 9), "EPERM"),
        ("tgkill", (PID, 7, 9), True),
        ("tgkill", (7, 7, 9), "EPERM"),
        ("prlimit64", (0, 7), True),
        ("prlimit64", (PID, 7), True),
        ("prlimit64", (1, 7), "EPERM"),
        ("sched_setaffinity", (0,), True),
        ("sched_setaffinity", (1,), "EPERM"),
        ("prctl", (1, 0), "EPERM"),
        ("prctl", (15,), True),
        ("fcntl", (3, 1030), True),
        ("fcntl", (3, 8), "EPERM"),
        ("fcntl", (3, 1024), "EPERM"),
        ("ioctl", (1, 0x5401), True),
        ("ioctl", (1, 0x5412), "ENOTTY"),  # typing on a terminal
        ("ioctl", (1, 0x40086602), "ENOTTY"),  # flags of a file
        ("openat", (0, 0, os.O_RDONLY | os.O_CLOEXEC), True),
        ("openat", (0, 0, os.O_WRONLY | os.O_TRUNC | os.O_CREAT), True),
        ("openat", (0, 0, os.O_RDONLY | os.O_TRUNC), "EPERM"),
    ],
)
def test_calls_that_depend_on_an_argument(processor, call, arguments, result):
    assert says(processor, call, *arguments) == result


@both
def test_jumps_fit_a_byte_and_every_path_ends(processor):
    lines = program(processor, PID)
    assert len(lines) < 4096
    assert all(max(yes, no) < 256 for _, yes, no, _ in lines)
    assert all(at + 1 + max(yes, no) < len(lines) for at, (op, yes, no, _) in enumerate(lines) if op != RETURN)


def test_the_kernel_says_what_our_interpreter_says():
    try:
        here = machine()
    except OSError as error:
        pytest.skip(str(error))
    code = """
import ctypes, os, sys
from regard.school.sandbox.system_calls import drop_privileges, restrict_system_calls
drop_privileges()
restrict_system_calls()
libc = ctypes.CDLL(None, use_errno=True)
for code in map(int, sys.argv[1:]):
    print(code, ctypes.get_errno() if libc.syscall(code, -1, -1, -1, -1, -1) < 0 else 0)
"""
    # With these arguments, a call that is not refused fails with another error, or does nothing.
    calls = [
        "socket",
        "io_uring_setup",
        "ptrace",
        "mount",
        "fchmod",
        "execve",
        "memfd_create",
        "clone3",
        "bpf",
        "chroot",
    ]
    numbers = [str(call_number(call, here)) for call in calls]
    done = subprocess.run([sys.executable, "-c", code, *numbers], capture_output=True, text=True)
    if "Invalid argument" in done.stderr:
        pytest.skip("this kernel has no seccomp filters")
    expected = [errno.ENOSYS if call in ABSENT else errno.EPERM for call in calls]
    assert [int(line.split()[1]) for line in done.stdout.splitlines()] == expected, done.stderr
