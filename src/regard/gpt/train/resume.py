"""Where a run resumes: its newest intact checkpoint, and whether everything else in its directory is what it wrote.

Nothing is changed before all of it is checked, so a run that is refused leaves its directory as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from regard.gpt.train import state
from regard.gpt.train.hashes import HASHES, FileHashes, check_types
from regard.gpt.train.options import RECIPE_DEFAULTS, FitOptions, checkpoint_interval, learning_rate_at
from regard.gpt.train.processes import check_full_state
from regard.gpt.train.state import BEST, MODEL, Json
from regard.support.argument_names import assigned


@dataclass
class Resumption:
    """What every process must know of how a run begins."""

    checkpoint: state.Checkpoint | None = None  # None for a new run
    best: Json = field(default_factory=dict)  # the lowest validation loss so far, and its step
    rewrite_best: bool = False  # best/ is damaged, and the checkpoint has its weights
    notes: list[str] = field(default_factory=list)


def find(out: Path, settings: Json, options: FitOptions, model: nn.Module) -> tuple[Resumption, dict[str, Tensor]]:
    """How a run in `out` begins, and the tensors to load; a ValueError if what is there is of another run, or damaged.

    A damaged checkpoint is set aside under another name, and the run resumes from the newest intact one.
    """
    found = state.newest(out)
    if found is None:
        return _new_run(out, options), {}
    checkpoint = found.checkpoint
    lengthened = _check_settings(out, checkpoint, settings, options)
    check_full_state(model, found.tensors, checkpoint.path)
    result = Resumption(checkpoint, checkpoint.best)
    hashes = FileHashes.read(out)
    _check_best(hashes, checkpoint, result)
    _check_directory(hashes, MODEL)
    damaged = [out / path for path in hashes.changed(MODEL) if (out / path).exists()]

    for path in damaged:  # or the tokenizer's files would be kept
        path.unlink()
        result.notes.append(f"{path} is damaged, or was changed; it is written again with the model")
    for path, reason in found.damaged.items():
        aside = path.replace(path.with_name(f"{path.name}.damaged"))  # neither read nor overwritten
        result.notes.append(f"{reason}. Resuming from {checkpoint.path.name}; the other is now {aside.name}")
    result.notes += [*_unchecked(out, checkpoint, hashes), *lengthened]
    return result, found.tensors


def _new_run(out: Path, options: FitOptions) -> Resumption:
    """A run from step 0, unless it would replace what another run has finished, or its steps since a checkpoint."""
    hashes, log = FileHashes.read(out), out / state.LOG
    taken = max((line["step"] for line in state.read_log(log)), default=0)
    if (hashes.recorded(MODEL) and (out / MODEL).is_dir()) or taken > checkpoint_interval(options):
        there = " and ".join(str(path) for path in (out / MODEL, out / BEST, log) if path.exists())
        raise ValueError(
            f"{there} are of a run whose checkpoints are gone; a new run would begin at step 0 and replace them. "
            "Choose another directory, bring a checkpoint back, or start over (--fresh, resume=False)"
        )
    begun, new = log.is_file() and log.stat().st_size > 0, "a new log"
    new += " and another best model" if hashes.recorded(BEST) and (out / BEST).is_dir() else ""
    note = f"{out} has the log of a run that ended before its first checkpoint; this run begins at step 0, with {new}"
    return Resumption(notes=[note] if begun else [])


def _check_settings(out: Path, checkpoint: state.Checkpoint, settings: Json, options: FitOptions) -> list[str]:
    """The settings must be those of the checkpoint, but a finished run may get more steps; the note that says so."""
    # Earlier versions did not write how many windows; they are taken to be the same.
    before = {**RECIPE_DEFAULTS, "evaluate_windows": options.evaluate_windows, **checkpoint.settings}
    steps, warmup, notes = before.get("steps"), before.get("warmup"), list[str]()
    if steps == checkpoint.step < options.steps:
        before["steps"] = options.steps
        if isinstance(warmup, int) and max(warmup, options.warmup) <= checkpoint.step:  # its default grows with steps
            before["warmup"] = options.warmup
        notes += [
            f"lengthened from {steps:,} to {options.steps:,} steps: step {steps + 1:,} has a learning rate of "
            f"{learning_rate_at(steps, options):.3g}, that of a run of {options.steps:,} steps, which then falls to "
            f"{options.final_learning_rate:.3g}"
        ]
    threads, threads_now = before.pop("threads", None), settings["threads"]
    if None not in (threads, threads_now) and threads != threads_now:
        notes += [f"torch had {threads} threads and has {threads_now}: the last digits of losses may differ"]
    different = state.differences(before, {name: one for name, one in settings.items() if name != "threads"})
    if different:
        model = out / MODEL
        fine_tune = f". To train its model further: --model {model}, and another --out" if model.is_dir() else ""
        raise ValueError(
            f"{checkpoint.path} is of another run: {'; '.join(different)}. Use the same options to resume, "
            f"choose another directory, or start over ({assigned('resume', False)}){fine_tune}"
        )
    return notes


def _check_best(hashes: FileHashes, checkpoint: state.Checkpoint, result: Resumption) -> None:
    """best/ must be what the run wrote; where its weights can be had again, it is written again."""
    _check_directory(hashes, BEST)
    directory, recorded, changed = hashes.out / BEST, hashes.recorded(BEST), hashes.changed(BEST)
    best = hashes.best if recorded else checkpoint.best
    if recorded and not changed:
        result.best = best  # it may be newer than the checkpoint
    elif best and (changed or not directory.exists()):
        path = hashes.out / changed[0] if changed and directory.exists() else directory
        what = f"{path} is {'damaged' if path.exists() else 'missing'}"
        if best["step"] == checkpoint.step:
            result.best, result.rewrite_best = best, True
            result.notes.append(f"{what}; it is written again from {checkpoint.path.name}")
        elif best["step"] > checkpoint.step or not directory.exists():
            result.best = {}
            result.notes.append(f"{what}; the next evaluation writes it again")
        else:
            remedy = f"remove {directory}: the run then resumes, and the next evaluation writes it again"
            raise ValueError(f"{what}: it does not have the hash in {HASHES}. Restore it from a copy, or {remedy}")


def _check_directory(hashes: FileHashes, name: str) -> None:
    path = hashes.out / name
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} must be a directory of this run, but is a file; move it away, then resume")
    check_types(hashes.out, hashes.recorded(name))


def _unchecked(out: Path, checkpoint: state.Checkpoint, hashes: FileHashes) -> Iterator[str]:
    """What could not be checked, or is gone."""
    without = [name for name in (BEST, MODEL) if (out / name).is_dir() and not hashes.recorded(name)]
    if checkpoint.log is None:
        yield (
            f"{checkpoint.path.name} is of an earlier version of regard, without hashes: "
            f"{', '.join(['its content', state.LOG, *without])} are not checked; the next checkpoint has hashes"
        )
    elif without:
        them = "it" if len(without) == 1 else "them"
        yield f"{' and '.join(without)} in {out} cannot be checked: {HASHES} has no hashes of {them}"
    log = out / state.LOG
    if state.log_before(log, checkpoint) is None:
        yield f"{log} has no lines up to step {checkpoint.step:,}, as if it had been removed; it begins after it"
