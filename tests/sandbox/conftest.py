"""One worker for all tests, with small limits for all but time."""

import pytest

from regard.sandbox.limits import MiB, RunLimits
from regard.sandbox.protection import Protection, ProtectionMissing
from regard.sandbox.worker import Worker

SMALL = RunLimits(
    wall_seconds=30.0,
    cpu_seconds=30,
    memory_bytes=400 * MiB,
    folder_bytes=20 * MiB,
    result_bytes=MiB,
    output_bytes=100_000,
)


@pytest.fixture(scope="session")
def worker():
    """A worker with every layer of protection; tests that need it are skipped where one is missing."""
    with Worker(SMALL, Protection.for_others()) as one:
        try:
            assert one.protection.missing == {}
        except ProtectionMissing as error:
            pytest.skip(str(error))
        yield one


@pytest.fixture(scope="session")
def own_worker():
    with Worker(SMALL, Protection.for_own_file()) as one:
        yield one
