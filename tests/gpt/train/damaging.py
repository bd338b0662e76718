"""A stopped run of `regard train`, ways to damage a file in its directory, and what resuming then does."""

import contextlib
import os
import random
import shutil
import signal
from pathlib import Path

from safetensors.torch import load_file

from regard.commands.train import train_on_files
from regard.gpt.train.state import read_log

STOP, STEPS = 8, 13
OPTIONS = {
    "steps": STEPS,
    "batch": 3,
    "context_length": 7,
    "seed": 5,
    "device": "cpu",
    "val_fraction": 0.1,
    "dropout": 0.2,
}
INTERVALS = {"checkpoint_every": 3, "evaluate_every": 5, "keep": 2}


def stop(line):
    """What Ctrl-C does."""
    if line["step"] == STOP:
        os.kill(os.getpid(), signal.SIGINT)


def train(text, out, **flags):
    return train_on_files([text], out, **OPTIONS | INTERVALS | flags)


def damage(path: Path, how: str, chance: random.Random, others: dict[str, Path]) -> None:
    """Damage a file; `others` are the same file of other runs."""
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "zeroed":
        path.write_bytes(bytes(len(content)))
    elif how == "one bit flipped" and content:
        at = chance.randrange(len(content))
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :])
    elif how == "missing":
        path.unlink()
    elif how == "a directory":
        path.unlink()
        path.mkdir()
    elif how == "a pipe":
        path.unlink()
        os.mkfifo(path)
    elif how in others:
        shutil.copyfile(others[how], path)


def files(out: Path) -> list[str]:
    """Every file of a run, by its path in the directory."""
    return sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())


def contents(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in files(out)}


def outcome(text: Path, out: Path, name: str, unbroken: Path, captured) -> str:
    """Resume a damaged run; assert that it ends as the unbroken one or is refused, and say which."""
    before = contents(out)
    captured.readouterr()
    try:
        result = train(text, out)
    except ValueError as error:
        message = str(error)
        assert Path(name).name in message or "hashes.json" in message, message
        assert any(remedy in message for remedy in ("estore", "emove", "ove it away", "move the file")), message
        assert contents(out) == before, "a refused run must leave its directory as it was"
        return "refused"
    stderr = captured.readouterr().err
    assert result.finished
    assert all(note in stderr for note in result.notes)
    theirs = {line["step"]: line for line in read_log(unbroken / "log.jsonl")}
    for line in read_log(out / "log.jsonl"):
        for key in ("loss", "grad_norm", "lr", "val_loss"):
            assert line.get(key) == theirs[line["step"]].get(key), (line["step"], key)
    last = f"checkpoint-{STEPS:08d}.safetensors"
    mine, right = load_file(out / last), load_file(unbroken / last)
    assert mine.keys() == right.keys()
    assert all(mine[key].equal(right[key]) for key in right)
    for file in files(unbroken / "model"):
        assert (out / "model" / file).read_bytes() == (unbroken / "model" / file).read_bytes(), file
        assert (out / "best" / file).read_bytes() == (unbroken / "best" / file).read_bytes(), file
    for file in ("tokens.bin", "tokenizer.json"):
        assert (out / file).read_bytes() == (unbroken / file).read_bytes(), file
    if any("Resuming from" in note for note in result.notes):
        return "falls back"
    said = bool(result.notes) or "written: " in stderr or "no tokenizer given" in stderr
    return "says so" if said else "resumes"


@contextlib.contextmanager
def copy_of(out: Path, to: Path):
    """A copy of a run, for as long as it is needed."""
    shutil.copytree(out, to)
    try:
        yield to
    finally:
        shutil.rmtree(to)
