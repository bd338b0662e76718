"""Run hundreds of hostile submissions and see that nothing breaks: python tests/school/sandbox/torture.py --count 500

Every run must end within its limits, nothing outside its folder may change, and this process must live. Exit code 1
names what was broken.
"""

from __future__ import annotations

import argparse
import os
import random
import stat
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

import regard
from regard.school.sandbox import process
from regard.school.sandbox.limits import MiB, RunLimits
from regard.school.sandbox.pool import run_all
from regard.school.sandbox.protection import Protection
from regard.school.sandbox.worker import Job
from school.sandbox.attacks import ATTACKS, BY_NAME, DRIVER, aim, variants, with_f

PACKAGE = Path(regard.__file__).parent
LARGEST = 10 * MiB  # of a file that is compared byte by byte
# The words that an outcome may have.
WORDS = {"finished", "failed", "ended early", "out of time", "out of memory", "killed", "malformed"}
WORDS |= {"wrote too much", "too many threads"}


def states(folder: Path) -> dict[str, object]:
    """Everything about the files of a folder that could be changed."""

    def contents(path: Path, found: os.stat_result) -> bytes | str | None:
        if path.is_symlink():
            return os.readlink(path)
        if not path.is_file() or found.st_size > LARGEST:  # its time of change tells, too
            return None
        return path.read_bytes()

    return {
        str(path): (found.st_mode, found.st_uid, found.st_size, found.st_mtime_ns, contents(path, found))
        for path in sorted([folder, *folder.rglob("*")])
        if (found := path.lstat())
    }


def make_victim(folder: Path) -> Path:
    """A folder with files that attacks are aimed at."""
    (folder / "inside").mkdir(parents=True)
    (folder / "file").write_text("seven")
    (folder / "inside" / "file").write_text("eleven")
    return folder


def closed_to_others(path: Path | str) -> str | None:
    """The first folder on a path that other users may not enter."""
    folders = [*reversed(Path(path).resolve().parents), Path(path).resolve()]
    return next((str(one) for one in folders if one.is_dir() and not one.stat().st_mode & stat.S_IXOTH), None)


def ends_as_it_must(attack, outcome) -> bool:
    """Is that the outcome which the table of attacks gives?"""
    word, _, kind = attack.ends.partition(": ")
    return word in ("*", outcome.word) and (not kind or (outcome.failure is not None and outcome.failure.type == kind))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="how many of all variants [default: 500]")
    parser.add_argument("--seed", type=int, default=7, help="which of them [default: 7]")
    parser.add_argument("--wall", type=float, default=1.0, help="seconds of each run [default: 1.0]")
    parser.add_argument("--names", nargs="*", help="only these attacks, as they are, each with its exact outcome")
    parser.add_argument("--each", action="store_true", help="every attack as it is, each with its exact outcome")
    parser.add_argument("--landlock", type=int, help="as on a kernel with this older version of Landlock")
    parser.add_argument("--workers", type=int, help="[default: the number of processors]")
    options = parser.parse_args()
    if options.each:
        options.names = list(BY_NAME)
    if options.landlock:
        older = f"import regard.school.sandbox.landlock as older; older.landlock_version = lambda: {options.landlock}; "
        process.START = process.START.replace(
            "from regard.school.sandbox.runner", f"{older}from regard.school.sandbox.runner"
        )
    os.environ["REGARD_TEST_SECRET"] = "thirteen"
    x, begin, wrong = torch.randn(3, 5), time.monotonic(), []
    limits = RunLimits(wall_seconds=options.wall, cpu_seconds=2, memory_bytes=400 * MiB, result_bytes=MiB)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        victim = make_victim(folder / "victim")

        def aimed(source: str) -> str:
            return aim(source, victim, os.getpid(), PACKAGE)

        sources = list(variants(aimed))
        random.Random(options.seed).shuffle(sources)
        if options.names:
            sources = [(name, aimed(BY_NAME[name].source)) for name in options.names]
        sources, jobs = sources[: len(options.names or ()) or options.count], []
        for number, (_, source) in enumerate(sources):
            path = folder / "submissions" / str(number) / "homework.py"
            path.parent.mkdir(parents=True)
            path.write_text(with_f(source))
            jobs.append(Job(path, DRIVER, {"x": x}))
        before, mine = states(folder), (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0))
        outcomes = run_all(
            jobs,
            options.workers,
            limits=limits,
            protection=Protection.for_others(),
            progress=lambda done, total, *_: print(f"\r  {done} of {total}", end="", file=sys.stderr, flush=True),
        )
        if states(folder) != before:
            wrong.append("files outside were changed")
    if (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)) != mine:
        wrong.append("this process was changed")
    for (name, _), outcome in zip(sources, outcomes, strict=True):
        if outcome.word not in WORDS:
            wrong.append(f"{name}: {outcome.word}: {outcome.sentence}")
        if outcome.seconds > options.wall + 5:
            wrong.append(f"{name}: it ended after {outcome.seconds:.1f} s")
        if options.names and not ends_as_it_must(BY_NAME[name], outcome):
            wrong.append(f"{name}: {outcome.word} {outcome.failure}")
        if outcome.finished and (set(outcome.tensors) != {"out"} or not torch.equal(outcome.tensors["out"], x)):
            wrong.append(f"{name}: finished with other numbers")
    print(
        f"\n\n  {len(jobs)} submissions of {len(ATTACKS)} attacks, uid {os.getuid()}, {time.monotonic() - begin:.0f} "
        "s\n"
    )
    for word, count in Counter(outcome.word for outcome in outcomes).most_common():
        print(f"  {count:5}  {word}")
    print(*(f"\n  wrong: {line}" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
