"""The state of a run, in a directory, so that it can go on: checkpoints, the log, and a lock.

A checkpoint is one safetensors file: weights and what the optimizer remembers, by name, and in its metadata the step
and all that the run was told. It is there whole or not at all. Chance needs no place in it: everything random in a
step follows from the seed and the step's number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from regard.files import atomically, contents, write_safely

FORM = "1"  # raised when a checkpoint is written in another way


class Checkpoint(NamedTuple):
    """What a checkpoint says of itself; `tensors()` has the rest."""

    path: Path
    step: int
    told: dict[str, Any]  # what the run was told: config, hyper-parameters, data
    best: dict[str, Any]  # the lowest validation loss so far, and its step

    def tensors(self) -> dict[str, Tensor]:
        """Weights and optimizer state, by name, on the CPU."""
        from safetensors.torch import load_file

        return load_file(self.path)


def save(
    out: Path, step: int, tensors: Mapping[str, Tensor], told: dict[str, Any], best: dict[str, Any], keep: int
) -> Path:
    """Write a checkpoint; only when it is safe on the disk, all but the last `keep` are removed."""
    path = out / f"checkpoint-{step:08d}.safetensors"
    notes = {"form": FORM, "step": str(step), "told": json.dumps(told), "best": json.dumps(best)}
    write_safely(path, tensors, notes)
    for old in checkpoints(out)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def checkpoints(out: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(path for path in out.glob("checkpoint-*.safetensors") if path.stem[11:].isdigit())


def latest(out: Path) -> Checkpoint | None:
    """The last checkpoint of a run, checked; None where there is none."""
    found = checkpoints(out)
    if not found:
        return None
    path = found[-1]
    before = f"; without it the run goes on from {found[-2].name}" if len(found) > 1 else ""
    try:
        contents(path)
        notes = _metadata(path)
        if notes["form"] != FORM:
            raise ValueError(f"{path} was written by another version of regard (form {notes['form']}, here {FORM})")
        return Checkpoint(path, int(notes["step"]), json.loads(notes["told"]), json.loads(notes["best"]))
    except KeyError as error:
        raise ValueError(f"{path} is no checkpoint of a run: it has no {error}{before}") from None
    except ValueError as error:
        raise ValueError(f"{str(error).removesuffix(' Nothing was loaded.')} Remove {path.name}{before}") from None


def differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What two runs were told differently, each as one phrase.

    >>> differences({"batch": 4, "config": {"d_model": 64}}, {"batch": 8, "config": {"d_model": 64}})
    ['batch was 4 and is 8']
    """
    found = []
    for name in dict.fromkeys([*before, *now]):
        one, other = before.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            found += differences(one, other, f"{prefix}{name}.")
        elif one != other:
            found.append(f"{prefix}{name} was {_short(one)} and is {_short(other)}")
    return found


def clear(out: Path) -> None:
    """Remove what an earlier run left: its checkpoints, and its log."""
    for path in [*checkpoints(out), out / "log.jsonl"]:
        path.unlink(missing_ok=True)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep a run's directory to oneself, and clear away what a killed run left half written."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("a+") as file:
        _lock(file, out)
        for left in out.glob(".*.partial"):
            left.unlink(missing_ok=True)
        yield


class Log:
    """One line of JSON a step. Reopened, it forgets the steps after the checkpoint: each step is there once."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = [line for line in read_log(path) if line["step"] <= step]
        with atomically(path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self.last: dict[str, Any] = kept[-1] if kept else {}

    def write(self, lines: Iterable[Mapping[str, Any]], safely: bool) -> None:
        """Add lines: they outlive this process and, if need be, the machine. The log must not be behind a checkpoint."""
        with self.path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
            if safely:
                file.flush()
                os.fsync(file.fileno())


def read_log(path: Path | str) -> list[dict[str, Any]]:
    """The lines of a log; one that a killed run left half written is not there."""
    path, found = Path(path), []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def _metadata(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return file.metadata() or {}


def _lock(file: Any, out: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on this system
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
