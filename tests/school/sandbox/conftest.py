"""One worker for all tests, with small limits for all but time."""

from pathlib import Path

import pytest

from regard.school.sandbox.landlock import landlock_version
from regard.school.sandbox.limits import MiB, RunLimits
from regard.school.sandbox.protection import Protection, ProtectionMissing
from regard.school.sandbox.worker import Worker

SMALL = RunLimits(
    wall_seconds=30.0,
    cpu_seconds=30,
    memory_bytes=400 * MiB,
    folder_bytes=20 * MiB,
    result_bytes=MiB,
    output_bytes=100_000,
)


def kernel_has_every_layer() -> bool:
    try:
        return landlock_version() > 0 and "Seccomp:" in Path("/proc/self/status").read_text()
    except OSError:
        return False


@pytest.fixture(scope="session")
def worker():
    """A worker with every layer of protection; tests that need it are skipped where the kernel lacks one."""
    with Worker(SMALL, Protection.for_others()) as one:
        try:
            assert one.protection.missing == {}
        except ProtectionMissing as error:
            if kernel_has_every_layer():
                raise
            pytest.skip(str(error))
        yield one


@pytest.fixture(scope="session")
def own_worker():
    with Worker(SMALL, Protection.for_own_file()) as one:
        yield one
