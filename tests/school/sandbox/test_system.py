"""System calls: their numbers are those of the kernel, and failures are errors."""

import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest

from regard.school.sandbox.system import MACHINES, NUMBERS, call_number, machine, system_call

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
        "from regard.school.sandbox.system import drop_privileges; drop_privileges()\n"
        "print([l.split()[1] for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapPrm', 'NoNewPrivs'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(["0" * 16, "0" * 16, "1"])
