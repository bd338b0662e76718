"""Limits: set in a process for good, and some memory is kept back."""

import mmap
import subprocess
import sys

import pytest

from regard.school.sandbox.limits import MiB, RunLimits, used_memory

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits memory")


def run(code: str) -> str:
    code = f"import resource as r; from regard.school.sandbox.limits import *\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", ["cpu_seconds", "memory_bytes", "open_files", "result_bytes"])
def test_a_limit_of_nothing_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name} \(0\) must be greater than 0"):
        RunLimits(**{name: 0})


@linux
def test_limits_are_those_of_the_process_afterwards():
    out = run(
        "before = used_memory(); set_limits(RunLimits(cpu_seconds=7, file_bytes=11, open_files=13, memory_bytes=17 * "
        "MiB))\n"
        "print([r.getrlimit(n) for n in (r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE, r.RLIMIT_CORE)])\n"
        "print((r.getrlimit(r.RLIMIT_AS)[0] - before) // MiB)"
    )
    assert out.split("\n")[:2] == ["[(7, 8), (11, 11), (13, 13), (0, 0)]", "17"]


@linux
def test_a_limit_that_is_lower_already_stays():
    out = run(
        "r.setrlimit(r.RLIMIT_CPU, (3, 5)); set_limits(RunLimits(cpu_seconds=7)); print(r.getrlimit(r.RLIMIT_CPU))"
    )
    assert out.strip() == "(5, 5)"


@linux
def test_memory_runs_out_and_there_is_some_left_to_say_so():
    out = run(
        "set_limits(RunLimits(memory_bytes=100 * MiB)); kept = []\n"
        "try:\n    while True: kept.append(bytes(MiB))\n"
        "except MemoryError: release_spare_memory(); more = bytes(30 * MiB); print(len(kept) // 10, len(more) // MiB)"
    )
    assert out.split() == ["9", "30"]


@linux
def test_used_memory_grows_with_what_is_used():
    before = used_memory()
    with mmap.mmap(-1, 50 * MiB) as block:  # a bytearray may lie in memory that other tests have freed
        assert used_memory() - before >= len(block)
