"""Grade a class of hostile submissions by `regard grade` itself: python tests/school/grading/torture.py --count 500

Each must get a verdict within its limits, and none of the wrong ones "right". Nothing outside may change, no process
may be left, the grader must live, and what it writes must hold no escape, no formula and no markup of a submission's.
Exit code 1 names what was broken. `--nobody` does it as an ordinary user, which only root can.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

import regard
from regard.school.grading.class_report import clean
from school.grading.hostile import HONEST, make_class
from school.grading.hostile_functions import EXERCISE
from school.grading.submissions import RIGHT
from school.sandbox.torture import closed_to_others, make_victim, states

PACKAGE = Path(regard.__file__).parent
KEY = """
seed = 52711

[sizes]
d_in = 13
"""
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "p", "table", "thead", "tbody", "tr", "th", "td"}
WATCHED = ("/tmp", "/var/tmp", "/dev/shm")
FORMULA = re.compile(r"(^|[;,|\t\"])\s*[=+@\-\uff1d\uff0b\uff0d\uff20]")
SLACK = 15.0  # seconds beyond its limit, for comparing and for a busy machine


class Tortured(NamedTuple):
    """What was graded, what came of it, and what was broken."""

    made: dict[str, str]
    grades: list[dict[str, Any]]
    broken: list[str]
    seconds: float
    text: str


def torture(
    count: int,
    seed: int,
    limit: float,
    workers: int | None,
    *,
    nobody: bool = False,
    only: str = "",
    by_exercise: bool = False,
) -> Tortured:
    """Make a class, grade it, and look for what must not be."""
    with contextlib.ExitStack() as stack:
        base = Path(tempfile.mkdtemp(prefix="torture-", dir="/tmp"))
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        base.chmod(0o755)
        for name in ("class", "home", "tmp", "out", "stash"):
            (base / name).mkdir()
        home = make_victim(base / "home" / "victim")
        (home / "right.py").write_text(RIGHT)
        made = make_class(base / "class", home, count, seed, os.getpid(), PACKAGE, only, by_exercise)
        (base / "home" / "exercise.py").write_text(EXERCISE)
        (base / "home" / "key.toml").write_text('exercise = "exercise.py"\nseed = 5\n' if by_exercise else KEY)
        if nobody:
            for path in [base, *base.rglob("*")]:
                os.chown(path, 65534, 65534, follow_symlinks=False)
        before, elsewhere, running = contents(base), listing(base), children()
        begin = time.monotonic()
        done = run_grade(base, limit, workers, nobody=nobody)
        seconds = time.monotonic() - begin
        written = {path.name: path.read_bytes() for path in (base / "out").iterdir()}
        for path in (base / "out").iterdir():
            path.unlink()
        broken = [f"process left: {one}" for one in processes_left(running)]
        broken += [f"changed: {one}" for one in changes(before, contents(base))]
        broken += [f"changed elsewhere: {one}" for one in changes(elsewhere, listing(base))]
        text = done.stdout.decode("utf-8", "backslashreplace")
        if done.returncode not in (0, 1) or set(written) != {"grades.csv", "grades.json", "grades.html"}:
            stderr = done.stderr.decode("utf-8", "backslashreplace")
            return Tortured(
                made, [], [*broken, f"the grader ended with {done.returncode}: {stderr[-2000:]}"], seconds, text
            )
        broken += unprintable("stdout", text) + unprintable("stderr", done.stderr.decode())
        for name, data in written.items():
            broken += unprintable(name, data.decode())
        broken += wrong_csv(written["grades.csv"].decode()) + wrong_html(written["grades.html"].decode())
        report = json.loads(written["grades.json"], parse_constant=lambda one: broken.append(f"JSON has {one}"))
        return Tortured(made, report["grades"], broken + wrong_grades(made, report["grades"], limit), seconds, text)


def run_grade(base: Path, limit: float, workers: int | None, *, nobody: bool) -> subprocess.CompletedProcess[bytes]:
    """`regard grade`, as a person calls it."""
    outputs = [f"--{kind}={base}/out/grades.{kind}" for kind in ("csv", "json", "html")]
    command = [
        sys.executable,
        "-B",
        "-m",
        "regard",
        "grade",
        str(base / "class"),
        f"--key={base}/home/key.toml",
        *outputs,
    ]
    command += [f"--time={limit:g}", *([f"--workers={workers}"] if workers else [])]
    if nobody:
        command = as_nobody(command, base)
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
        "PYTHONPATH": str(PACKAGE.parent), "HOME": str(base / "home"), "TMPDIR": str(base / "tmp"),
        "REGARD_TEST_SECRET": "thirteen", "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    become_reaper()
    return subprocess.run(command, capture_output=True, env=environment, cwd=base / "home")


def as_nobody(command: list[str], base: Path) -> list[str]:
    """The same command for an ordinary user; an interpreter that others may not enter is put where they may."""
    prefix, stash = os.path.realpath(sys.base_prefix), base / "stash"
    closed = closed_to_others(prefix)
    mounts = "set -e\n"
    if closed:
        mounts += (
            f'mount --bind "{prefix}" "{stash}"; mount -t tmpfs -o mode=755 tmpfs "{closed}"; mkdir -p "{prefix}"; '
            f'mount --bind "{stash}" "{prefix}"\n'
        )
    mounts += 'exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"\n'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts, "sh", *command]


def become_reaper() -> None:
    """Whatever a child of this process leaves behind becomes a child of this process."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def children() -> set[str]:
    """The children of this process that run, by number and name."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text("utf-8", "replace").rpartition(")")
            state, parent = rest.split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.add(name)
    return found


def processes_left(before: set[str]) -> set[str]:
    """The children that were not there before, after five seconds."""
    end = time.monotonic() + 5
    while (left := children() - before) and time.monotonic() < end:
        time.sleep(0.05)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return left


def listing(base: Path) -> dict[str, object]:
    """What is at home and in the folders for temporary files, one level deep."""
    found: dict[str, object] = {}
    for folder in (*WATCHED, os.path.expanduser("~"), str(Path.cwd())):
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                if not entry.path.startswith(str(base)):
                    one = entry.stat(follow_symlinks=False)
                    found[entry.path] = (one.st_mode, one.st_uid, None if entry.is_dir() else one.st_mtime_ns)
    return found


def contents(base: Path) -> dict[str, object]:
    """Everything there; temporary files may come and go."""
    return {name: one for name, one in states(base).items() if name not in (f"{base}/tmp", f"{base}/out")}


def changes(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """What is not as it was."""
    return sorted(repr(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def unprintable(where: str, text: str) -> list[str]:
    """Control characters, and what changes the direction of a text."""
    odd = sorted({c for c in text if not c.isprintable() and c != "\n"})
    return [f"{where} has {odd!a}"] if odd else []


def wrong_csv(text: str) -> list[str]:
    """Cells that a spreadsheet takes for a formula, also where it takes another character for the separator."""
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    return [f"a formula: {cell[:60]!a}" for cell in cells if FORMULA.search(cell)]


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.odd: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Keep what the page does not write by itself."""
        if tag not in TAGS or {name for name, _ in attrs} - {
            "lang",
            "charset",
            "name",
            "content",
            "http-equiv",
            "style",
        }:
            self.odd.append(f"{tag} {attrs}")

    def handle_comment(self, data: str) -> None:
        """There are none."""
        self.odd.append(f"a comment: {data[:40]}")


def wrong_html(text: str) -> list[str]:
    """Markup that a submission wrote."""
    parser = Tags()
    parser.feed(text)
    return [f"markup: {one[:80]!a}" for one in parser.odd]


def wrong_grades(made: dict[str, str], grades: list[dict[str, Any]], limit: float) -> list[str]:
    """Submissions without the verdict that they must get."""
    names = [clean(name) for name in made]
    if names != [one["submission"] for one in grades]:
        return [f"no verdict: {sorted(set(names) ^ {one['submission'] for one in grades})}"]
    broken = []
    for what, one in zip(made.values(), grades, strict=True):
        kind, _, name = what.partition(": ")
        if kind == "honest" and one["status"] != HONEST[name][1]:
            broken.append(f"{what}: {one['status']} {one['problem']}")
        if kind != "honest" and one["status"] not in ("wrong", "unchecked"):
            broken.append(f"{what}: {one['status']}: {one['checked']}")
        if one["seconds"] > limit + SLACK:
            broken.append(f"{what}: it took {one['seconds']:.1f} s: {one['problem'] or one['mistakes']}")
        if "not run" in one["problem"] and not what.startswith("file"):
            broken.append(f"{what}: {one['problem']}")
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="how many submissions [default: 500]")
    parser.add_argument("--seed", type=int, default=7, help="which attacks [default: 7]")
    parser.add_argument("--time", type=float, default=5.0, help="seconds for each submission [default: 5.0]")
    parser.add_argument("--exercise", action="store_true", help="by a teacher's own exercise")
    parser.add_argument("--only", default="", help="attacks with this text in their names")
    parser.add_argument("--workers", type=int, help="[default: the number of processors]")
    parser.add_argument("--nobody", action="store_true", help="as an ordinary user; only root can")
    parser.add_argument(
        "--shared", action="store_true", help="others use this machine: other changes in /tmp are told, not counted"
    )
    parser.add_argument("--verdicts", action="store_true", help="print every verdict")
    options = parser.parse_args()
    found = torture(
        options.count,
        options.seed,
        options.time,
        options.workers,
        nobody=options.nobody,
        only=options.only,
        by_exercise=options.exercise,
    )
    if options.verdicts:
        for what, one in zip(found.made.values(), found.grades, strict=False):
            says = one["problem"] or "; ".join(f"{m['name']}: {m['says']}" for m in one["mistakes"]) or one["checked"]
            print(f"{one['seconds']:5.1f} {one['status']:9} {what} | {says[:200]}")
    words = Counter(one["problem"].partition(":")[0] or one["status"] for one in found.grades)
    user = 65534 if options.nobody else os.getuid()
    print(f"\n  {len(found.made)} submissions, uid {user}, {found.seconds:.0f} s, "
          f"the longest {max((one['seconds'] for one in found.grades), default=0):.1f} s\n")  # fmt: skip
    for word, count in words.most_common():
        print(f"  {count:5}  {word}")
    counted = [one for one in found.broken if not (options.shared and one.startswith("changed elsewhere"))]
    print(*(f"\n  {'broken' if one in counted else 'note'}: {one}" for one in found.broken))
    return 1 if counted else 0


if __name__ == "__main__":
    sys.exit(main())
