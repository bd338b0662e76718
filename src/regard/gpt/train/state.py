"""The state of a run in its directory, so that it can resume: checkpoints, the log, and a lock.

A checkpoint is one safetensors file: weights and optimizer state by name, and in its metadata the step and the
settings of the run. It is written atomically. Random number generators need no place in it: everything random in a
step is seeded by the run's seed and the step's number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from regard.files import atomically, write_safetensors
from regard.gpt.checkpoint.header import read_header

FORMAT = "1"  # increased when the file format changes
LOG = "log.jsonl"


class Checkpoint(NamedTuple):
    """The metadata of a checkpoint; `tensors()` loads the rest."""

    path: Path
    step: int
    settings: dict[str, Any]  # of the run: recipe, config, data, tokenizer
    best: dict[str, Any]  # the lowest validation loss so far, and its step

    def tensors(self) -> dict[str, Tensor]:
        """Weights and optimizer state, by name, on the CPU."""
        from safetensors.torch import load_file

        return load_file(self.path)


def save(
    out: Path, step: int, tensors: Mapping[str, Tensor], settings: dict[str, Any], best: dict[str, Any], keep: int
) -> Path:
    """Write a checkpoint; once it is on the disk, remove all but the last `keep`."""
    path = out / f"checkpoint-{step:08d}.safetensors"
    # "form" and "told" are the names of the file format.
    metadata = {"form": FORMAT, "step": str(step), "told": json.dumps(settings), "best": json.dumps(best)}
    write_safetensors(path, tensors, metadata)
    for old in checkpoints(out)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def checkpoints(out: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(path for path in out.glob("checkpoint-*.safetensors") if path.stem[11:].isdigit())


def latest(out: Path) -> Checkpoint | None:
    """The last checkpoint of a run, checked; None where there is none."""
    paths = checkpoints(out)
    if not paths:
        return None
    path = paths[-1]
    before = f"; without it the run resumes from {paths[-2].name}" if len(paths) > 1 else ""
    try:
        read_header(path)
        metadata = _metadata(path)
        if metadata["form"] != FORMAT:
            raise ValueError(
                f"{path} was written by another version of regard (format {metadata['form']}, here {FORMAT})."
            )
        return Checkpoint(path, int(metadata["step"]), json.loads(metadata["told"]), json.loads(metadata["best"]))
    except KeyError as error:
        raise ValueError(f"{path} is no checkpoint of a run: it has no {error}{before}") from None
    except ValueError as error:
        raise ValueError(f"{str(error).removesuffix(' Nothing was loaded.')} Remove {path.name}{before}") from None


def differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The settings in which two runs differ, a phrase for each.

    >>> differences({"batch": 4, "config": {"d_model": 64}}, {"batch": 8, "config": {"d_model": 64}})
    ['batch was 4 and is 8']
    """
    phrases = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            phrases += differences(old, new, f"{prefix}{name}.")
        elif old != new:
            phrases.append(f"{prefix}{name} was {_short(old)} and is {_short(new)}")
    return phrases


def clear(out: Path) -> None:
    """Remove the checkpoints and the log of an earlier run."""
    for path in [*checkpoints(out), out / LOG]:
        path.unlink(missing_ok=True)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Lock a run's directory, and remove the temporary files of a killed run."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("a+") as file:
        _lock(file, out)
        for temporary in out.glob(".*.partial"):
            temporary.unlink(missing_ok=True)
        yield


class Log:
    """One line of JSON per step. When a run resumes, the lines after its checkpoint are removed: each step is there once."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        lines = [line for line in read_log(path) if line["step"] <= step]
        with atomically(path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.last: dict[str, Any] = lines[-1] if lines else {}

    def write(self, lines: Iterable[Mapping[str, Any]], sync: bool) -> None:
        """Append lines. With sync=True they are on the disk on return: the log must not be behind a checkpoint."""
        with self.path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
            if sync:
                file.flush()
                os.fsync(file.fileno())


def read_log(path: Path | str) -> list[dict[str, Any]]:
    """The lines of a log, without an incomplete last line of a killed run."""
    path, lines = Path(path), []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def _metadata(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return file.metadata() or {}


def _lock(file: Any, out: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ValueError(
            f"another run is at work in {out}; wait for it, stop it, or choose another directory"
        ) from None


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 40 else text[:12] + "…"
