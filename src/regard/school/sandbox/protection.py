"""What a submission is kept from, in layers; and which of them this system has.

A layer is a way for the kernel to refuse something. Each is tried when a worker starts, in a process of its own that
then attempts what it must not be able to do. Where one is missing, it is named: it is not enough that a call succeeded.
"""

from __future__ import annotations

import glob
import os
import resource
import site
import socket
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.school.sandbox import landlock
from regard.school.sandbox.limits import RunLimits, set_limits, used_memory
from regard.school.sandbox.system_calls import drop_privileges, restrict_system_calls

# In the order in which they are put on: the last one takes away what the others need.
LAYERS = {
    "limits": "time, memory, the size of files and open files are limited",
    "files": "only libraries and the submission can be read, and one temporary folder written (Landlock)",
    "privileges": "no privileges of an administrator, and no way to gain any",
    "calls": "no network, no other processes, no changes of files' permissions (seccomp)",
}
HERE = Path(__file__).resolve()
SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")


@dataclass(frozen=True)
class Protection:
    """What submissions of a worker may do. Use `for_others()` or `for_own_file()`.

    `hidden` are files and folders that a submission cannot read even if they are among the libraries.
    """

    layers: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    missing_allowed: bool = False
    imported: tuple[str, ...] = ()  # modules that a worker imports once, for all that it forks

    @classmethod
    def for_others(cls, hidden: Iterable[str | Path] = (), missing_allowed: bool = False) -> Protection:
        """For other people's code: every layer, and regard itself out of reach, so that no reference can be imported.

        A worker refuses to start where a layer is missing, unless `missing_allowed`.
        """
        return cls(tuple(LAYERS), tuple(os.path.realpath(path) for path in hidden), missing_allowed)

    @classmethod
    def for_own_file(cls, imported: Iterable[str] = ()) -> Protection:
        """For a person's own code: limits of time and memory; everything can be read and imported.

        `imported` are modules that it is likely to import: they are imported once, when the worker starts.
        """
        return cls(("limits",), imported=tuple(imported))

    @property
    def confined(self) -> bool:
        return "files" in self.layers


@dataclass(frozen=True)
class ProtectionReport:
    """Which layers a worker has; `missing` gives the reason for each that it was to have and has not."""

    active: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)


class ProtectionMissing(RuntimeError):
    """A layer of protection is missing on this system."""

    def __init__(self, report: ProtectionReport) -> None:
        self.report = report
        lines = [f"{LAYERS[layer]}: {reason}" for layer, reason in report.missing.items()]
        super().__init__("this system cannot protect itself from submissions; missing: " + "; ".join(lines))


def library_roots() -> list[str]:
    """The folders that Python imports libraries from: its standard library, site-packages, and where torch is."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    roots = [sysconfig.get_paths()[name] for name in names]
    roots += [sysconfig.get_paths(vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix})[n] for n in names]
    roots += site.getsitepackages()
    if (torch := sys.modules.get("torch")) and torch.__file__:
        roots.append(str(Path(torch.__file__).parents[1]))
    roots.append(str(Path(sys.base_prefix) / "lib"))  # shared libraries of the interpreter
    return list(dict.fromkeys(os.path.realpath(root) for root in roots if os.path.isdir(root)))


def library_grants(protection: Protection) -> list[landlock.Grant]:
    """Everything to be read for importing and computing, without this package, wherever it may be installed."""
    roots = [*library_roots(), *SYSTEM_LIBRARIES]
    installed = [os.path.join(root, "regard") for root in roots]
    for root in roots:  # of another Python
        installed += glob.glob(os.path.join(glob.escape(root), "python*", "*-packages", "regard"))
    return landlock.read_grants(roots, [HERE.parents[2], *installed, *protection.hidden])


def protect(
    layers: Iterable[str], limits: RunLimits, libraries: Iterable[landlock.Grant], job: Mapping[str, Any]
) -> None:
    """Put layers on this process, for good. `job` has the submission and the temporary folder."""
    for layer in (name for name in LAYERS if name in set(layers)):
        if layer == "limits":
            with suppress(OSError):  # where memory runs out, the kernel ends this process before others
                Path("/proc/self/oom_score_adj").write_text("1000")
            set_limits(limits)
        elif layer == "files":
            own = [(job["submission"], landlock.READ), (job["folder"], landlock.WRITE)]
            devices = [(path, access) for path, access in landlock.DEVICES.items() if os.path.exists(path)]
            landlock.restrict_files([*libraries, *devices, *own])
        elif layer == "privileges":
            drop_privileges()
        else:
            restrict_system_calls()


def attempt(layer: str) -> str | None:
    """Attempt what a layer must refuse, in a process that has it; the reason why it counts as missing, or None."""
    if layer == "limits":
        wanted = [resource.RLIMIT_CPU, *([] if used_memory() is None else [resource.RLIMIT_AS])]
        if any(resource.getrlimit(one)[0] == resource.RLIM_INFINITY for one in wanted):
            return "time and memory are not limited"
    if layer == "files":
        try:
            open(os.__file__, "rb").close()
        except PermissionError:
            return "Python's own library could not be read"
        with suppress(PermissionError), open(HERE, "rb"):
            return "a hidden file could be read"
    if layer == "privileges":
        with suppress(OSError):
            os.chroot("/")
            return "a privilege of an administrator was left"
    if layer == "calls":
        with suppress(PermissionError), socket.socket():
            return "a socket could be opened"
    return None
