"""Processes by /proc. Any of them may end while it is looked at."""

from contextlib import suppress
from pathlib import Path


def _state_and_parent(pid: str) -> tuple[str, int]:
    # The second field is a name in brackets, with anything in it.
    state, parent = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
    return state, int(parent)


def is_alive(pid: int) -> bool:
    """Does a process run? One that has ended and that nobody has waited for does not."""
    with suppress(OSError):
        return _state_and_parent(str(pid))[0] != "Z"
    return False


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = _state_and_parent(path.name)
            if parent == pid and state != "Z":
                found.append(int(path.name))
    return found
