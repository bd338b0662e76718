"""The machine and the versions that a benchmark ran with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch


def machine(command: str = "") -> dict[str, Any]:
    """Hardware, versions, commit and command: a measurement means little without them.

    >>> sorted(machine())[:4]
    ['command', 'commit', 'cores', 'cpu']
    """
    cuda = torch.cuda.is_available()
    return {
        "command": command,
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "regard", "transformers", "x-transformers", "triton")},
    }


def machine_lines(about: dict[str, Any]) -> list[str]:
    """The machine in a few lines of at most 80 columns."""
    versions = [f"{name} {version}" for name, version in about["versions"].items() if version]
    lines = [f"  {about['cpu']}, {about['cores']} cores, {about['threads']} threads"]
    if about["gpu"]:
        lines.append(f"  {about['gpu']}, CUDA {about['cuda']}, cuDNN {about['cudnn']}")
    line = f"  Python {about['python']}"
    for version in versions:
        if len(line) + len(version) + 2 > 80:
            lines.append(line + ",")
            line = f"  {version}"
        else:
            line += f", {version}"
    lines.append(line)
    if about["commit"]:
        lines.append(f"  commit {about['commit']}")
    return [line[:80] for line in lines]


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        if names:
            return names[0]
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the checkout that this package is in, or None."""
    here = Path(__file__).resolve().parent.parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git(
            "ls-files", "--error-unmatch", "__init__.py"
        )  # fails where the package is installed inside another checkout
        return git("rev-parse", "--short=12", "HEAD") + (
            " + changes" if git("status", "--porcelain", "--", ".") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None
