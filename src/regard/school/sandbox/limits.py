"""What a submission may use: time, memory, files and bytes."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from dataclasses import dataclass, fields

MiB = 1 << 20
SPARE = 64 * MiB  # memory that is left for reporting that memory ran out


@dataclass(frozen=True)
class RunLimits:
    """Limits of one run. The supervisor watches wall time and bytes; the kernel enforces the others in the process.

    >>> RunLimits(memory_bytes=0)
    Traceback (most recent call last):
    ValueError: memory_bytes (0) must be greater than 0
    """

    wall_seconds: float | int = 10.0  # from the start of its process
    cpu_seconds: int = 10  # of all threads together
    memory_bytes: int = 1024 * MiB  # beyond what the process with torch has already
    file_bytes: int = 16 * MiB  # of one file
    folder_bytes: int = 64 * MiB  # of all files together, measured a few times a second
    folder_entries: int = 1000
    open_files: int = 64
    threads: int = 200  # at a time, counted a few times a second
    output_bytes: int = MiB  # stdout and stderr together
    result_bytes: int = 64 * MiB

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"{field.name} ({getattr(self, field.name)}) must be greater than 0")


def set_limits(limits: RunLimits) -> None:
    """Limit this process, for good: hard limits cannot be raised again without privileges."""
    used = used_memory()
    if used is not None:
        # Memory that runs out is an exception, which needs some memory to be reported; see `release_spare_memory`.
        _limit(resource.RLIMIT_AS, used + limits.memory_bytes, used + limits.memory_bytes + SPARE)
    _limit(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)  # SIGXCPU, then SIGKILL
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _limit(resource.RLIMIT_NOFILE, limits.open_files)
    _limit(resource.RLIMIT_CORE, 0)


def release_spare_memory() -> None:
    """Allow this process the memory that was kept back for its last words."""
    with suppress(ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def used_memory() -> int | None:
    """The address space of this process in bytes; None where the system does not limit it."""
    if not sys.platform.startswith("linux"):
        return None  # macOS accepts RLIMIT_AS and ignores it
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _limit(what: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, or keep what is lower already."""
    now = resource.getrlimit(what)[1]
    hard = soft if hard is None else hard
    if now != resource.RLIM_INFINITY:
        soft, hard = min(soft, now), min(hard, now)
    resource.setrlimit(what, (soft, hard))
