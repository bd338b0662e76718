"""The state of a run in its directory, so that it can resume: checkpoints, the log, and a lock.

A checkpoint is one safetensors file: weights and optimizer state by name, and in its metadata the step, the settings of
the run, which bytes of the log came before it, and a hash of all that. It is written atomically. Random number
generators need no place in it: everything random in a step is seeded by the run's seed and the step's number.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from torch import Tensor

from regard.gpt.checkpoint.stored_tensors import read_header
from regard.gpt.train.atlases import atlas_files
from regard.gpt.train.hashes import HASHES, check_types, hash_tensors
from regard.support.argument_names import assigned, named
from regard.support.files import atomically, write_safetensors
from regard.support.printable import printable, readable

if TYPE_CHECKING:
    from regard.heads.atlas.timeline import Timeline

FORMAT = "2"  # increased when the file format changes
WITHOUT_HASH = "1"  # the format before it, which can still be read
LOG, LOCK = "log.jsonl", ".lock"
MODEL, BEST = "model", "best"  # directories
FILES = (LOCK, LOG, HASHES, "tokenizer.json", "tokens.bin", "tokens.json", "loss.png")  # beside checkpoints and models


class Damaged(ValueError):
    """A checkpoint is not what the run wrote, or not of this run."""


Json: TypeAlias = "dict[str, Any]"


class LogMark(NamedTuple):
    """The part of the log that was written before a checkpoint."""

    size: int  # bytes
    sha256: str


class Checkpoint(NamedTuple):
    """The metadata of a checkpoint."""

    path: Path
    step: int
    settings: Json  # of the run: recipe, config, data, tokenizer
    best: Json  # the lowest validation loss so far, and its step
    log: LogMark | None  # None in the format without hashes


class Resumable(NamedTuple):
    """The newest intact checkpoint of a run, with its tensors."""

    checkpoint: Checkpoint
    tensors: dict[str, Tensor]  # weights and optimizer state, by name, on the CPU
    damaged: dict[Path, str]  # newer checkpoints that cannot be used, and why


def save_checkpoint(
    out: Path, step: int, tensors: Mapping[str, Tensor], settings: Json, best: Json, keep: int, log: LogMark
) -> Path:
    """Write a checkpoint; once it is on the disk, remove all but the last `keep`."""
    path = out / f"checkpoint-{step:08d}.safetensors"
    # "form" and "told" are the names of the file format.
    metadata = {"form": FORMAT, "step": str(step), "told": json.dumps(settings), "best": json.dumps(best)}
    metadata["log"] = json.dumps(log)
    metadata["sha256"] = hash_tensors(tensors, metadata)
    write_safetensors(path, tensors, metadata)
    for old in checkpoints(out)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def checkpoints(out: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    paths = out.glob("checkpoint-*.safetensors")
    return sorted((p for p in paths if p.stem[11:].isascii() and p.stem[11:].isdigit()), key=step_of)


def step_of(path: Path) -> int:
    """The step of a checkpoint, by its name."""
    return int(path.stem[11:])


def newest(out: Path) -> Resumable | None:
    """The newest checkpoint that is intact and agrees with the log; None where there is no checkpoint at all."""
    damaged: dict[Path, str] = {}
    intact: Path | None = None  # the newest that only disagrees with the log
    for path in reversed(checkpoints(out)):
        try:
            checkpoint, tensors = read_checkpoint(path)
            intact = intact or path
            log_before(out / LOG, checkpoint)
            return Resumable(checkpoint, tensors, damaged)
        except Damaged as error:
            damaged[path] = str(error)
    if intact is not None:
        problem = f"{out / LOG} is damaged, or of another run: {damaged[intact]}. Restore it from a copy, or remove it"
        raise ValueError(f"{problem}: the run then resumes from {intact.name}, and the log begins after it")
    if damaged:
        remedy = f"Restore one from a copy, or start over ({assigned('resume', False)})"
        raise ValueError(f"no checkpoint in {out} is intact: {'; '.join(damaged.values())}. {remedy}")
    return None


def read_checkpoint(path: Path) -> tuple[Checkpoint, dict[str, Tensor]]:
    """A checkpoint and its tensors, checked against its hash; Damaged if it is not what was written."""
    from safetensors import SafetensorError, safe_open

    check_types(path.parent, [path.name])
    try:
        read_header(path)
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (ValueError, SafetensorError) as error:
        reason = str(error).removesuffix(" Nothing was loaded.").removeprefix(f"{path}: ")
        raise Damaged(f"{path.name} is damaged: {reason.removesuffix('.')}") from None
    form, stored = metadata.get("form"), metadata.pop("sha256", None)
    if form is None:
        raise Damaged(f"{path.name} is no checkpoint of a run: it has no 'form'")
    if form not in (FORMAT, WITHOUT_HASH):
        problem = f"was written by another version of regard (format {readable(form)}, here {FORMAT}), or is damaged"
        remedy = "move the file away: the run then resumes from the checkpoint before it"
        raise ValueError(f"{path} {problem}; resume with that version, or {remedy}")
    if form == FORMAT and stored != hash_tensors(tensors, metadata):
        raise Damaged(f"{path.name} is damaged: its content does not have the hash that is stored in it")
    try:
        step, settings, best = int(metadata["step"]), json.loads(metadata["told"]), json.loads(metadata["best"])
        log = LogMark(*json.loads(metadata["log"])) if form == FORMAT else None
        is_best = best == {} or [type(best[name]) for name in ("step", "val_loss")] == [int, float]
    except (KeyError, ValueError, TypeError, RecursionError):
        raise Damaged(f"{path.name} is damaged: its step, settings or best loss cannot be read") from None
    if not isinstance(settings, dict) or not is_best:
        raise Damaged(f"{path.name} is damaged: its settings or best loss are of another type")
    if step != step_of(path):
        raise Damaged(f"{path.name} is damaged, or renamed: it holds step {step}")
    return Checkpoint(path, step, settings, best, log), tensors


def log_before(path: Path, checkpoint: Checkpoint) -> bytes | None:
    """The log up to a checkpoint, None if it has no lines of that time; Damaged if they are not those it had then.

    A log that was removed is no damage, nor is the one that a resumed run begins in its place.
    """
    check_types(path.parent, [path.name])
    if not path.exists():
        return None
    content, mark = path.read_bytes(), checkpoint.log
    if mark is None:  # a checkpoint without hashes
        lines = [line for line in _parse_lines(path, content) if line["step"] <= checkpoint.step]
        return "".join(json.dumps(line) + "\n" for line in lines).encode() or None
    if hashlib.sha256(content[: mark.size]).hexdigest() == mark.sha256:
        return content[: mark.size]
    with suppress(ValueError):
        if all(line["step"] > checkpoint.step for line in _parse_lines(path, content)):
            return None
    short = f"{len(content):,} bytes, but had {mark.size:,}" if len(content) < mark.size else "other lines than it had"
    raise Damaged(f"{path.name} has {short} when {checkpoint.path.name} was written")


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
            phrases.append(f"{prefix}{readable(name)} was {_short(old)} and is {_short(new)}")
    return phrases


def clear(out: Path) -> None:
    """Remove the checkpoints, the atlases, the log and the hashes of an earlier run."""
    for path in [*checkpoints(out), *atlas_files(out), out / LOG, out / HASHES]:
        path.unlink(missing_ok=True)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Lock a run's directory, and remove the temporary files of a killed run."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        check_types(out, [*FILES, *(path.name for path in checkpoints(out))])
        lock = (out / LOCK).open("a+")
    except OSError as error:
        place = f"{named('out', out)} cannot be written: {error.strerror or error}"
        raise ValueError(f"{place}; choose another directory, where you may write") from None
    with lock as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows
            pass
        except OSError:
            remedy = "wait for it, stop it, or choose another directory"
            raise ValueError(f"another run is at work in {out}; {remedy}") from None
        for directory in (out, out / MODEL, out / BEST):
            for pattern in (".*.partial", ".tmp??????"):  # ours, and what safetensors writes before it renames
                for temporary in directory.glob(pattern):
                    temporary.unlink(missing_ok=True)
        yield


class Log:
    """One line of JSON per step. When a run resumes, lines after its checkpoint are removed: a step is there once."""

    def __init__(self, path: Path, checkpoint: Checkpoint | None) -> None:
        self.path = path
        content = (log_before(path, checkpoint) if checkpoint is not None else None) or b""
        self.last: Json = (_parse_lines(path, content) or [{}])[-1]
        self._digest, self._size = hashlib.sha256(content), len(content)
        with atomically(path) as temporary:
            temporary.write_bytes(content)

    def write(self, lines: Iterable[Mapping[str, Any]], sync: bool) -> None:
        """Append lines. With sync=True they are on the disk on return: the log must not be behind a checkpoint."""
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        self._digest.update(content)
        self._size += len(content)
        with self.path.open("ab") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def mark(self) -> LogMark:
        """What was written so far, for a checkpoint."""
        return LogMark(self._size, self._digest.hexdigest())


def read_log(path: Path | str) -> list[Json]:
    """The lines of a log, without an incomplete last line of a killed run; any other damage is a ValueError."""
    path = Path(path)
    check_types(path.parent, [path.name])
    return _parse_lines(path, path.read_bytes()) if path.exists() else []


def read_run(out: Path | str) -> Timeline:
    """The atlases of the run in this directory, by step, and its losses."""
    from regard.heads.atlas.timeline import read_timeline

    files = atlas_files(Path(out))
    if not files:
        raise ValueError(f"{out} has no atlases yet; regard train --atlas-every N writes them")
    return read_timeline(files, read_log(Path(out) / LOG))


def _parse_lines(path: Path, content: bytes) -> list[Json]:
    raw_lines, lines = content.split(b"\n"), list[Json]()
    for number, raw in enumerate(raw_lines, 1):
        if (line := _parse_line(raw)) is not None:
            lines.append(line)
        elif number < len(raw_lines) or not b'{"step": '.startswith(raw[:9]):  # else a killed run was writing it
            text, remedy = readable(raw[:60].decode(errors="replace")), "restore the file from a copy, or remove it"
            rule = f"line {number} must be a JSON object with step and loss, but is {text!r}"
            raise ValueError(f"{path} is damaged: {rule}; {remedy}")
    return lines


def _parse_line(raw: bytes) -> Json | None:
    with suppress(ValueError, RecursionError, KeyError, TypeError):
        line: Json = json.loads(raw)
        numbers = [line["loss"], line.get("val_loss", 0.0), line.get("time", 0.0)]
        if type(line["step"]) is int and all(isinstance(n, int | float) for n in numbers):
            return line
    return None


def _short(value: Any) -> str:
    text = "nothing" if value is None else printable(str(value))
    return text if len(text) <= 40 else text[:12] + "…"
