"""Play a course in a real terminal, from the first exercise to the last, and time each save to its verdict.

    PYTHONPATH=src python benchmarks/learn.py [COURSE]

For every exercise, a wrong answer and the solution are saved as editors do it, by writing another file and renaming it;
then n is pressed. A time runs from the rename to the last line of the screen with the verdict. Also measured: the first
screen and the first verdict of a cold start, and the processor time that waiting takes. Needs pexpect. The load of the
machine is printed, because with other work beside it all times are too long.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pexpect

import regard
from regard.school.course.courses import OWN_COURSE, Lesson, read_course
from regard.school.course.learner import LearnerFolder, start_folder
from regard.show.terminal.table import text_table

WRONG, RIGHT = "  h hint   ", "  n next   "  # the line of keys, below the verdict
SOURCE = str(Path(regard.__file__).parents[1])
IDLE = 10.0  # seconds


class Player:
    """`regard learn` in a terminal."""

    def __init__(self, folder: LearnerFolder) -> None:
        self.folder, self.begin = folder, time.perf_counter()
        self.screen: Any = pexpect.spawn(
            sys.executable, ["-m", "regard", "learn"], cwd=str(folder.path), dimensions=(50, 80), encoding="utf-8",
            timeout=120, env={**os.environ, "PYTHONPATH": SOURCE, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip

    def save(self, lesson: Lesson, answer: str, end: str) -> tuple[float, float]:
        """Save an answer; seconds until "checking…" and until the verdict."""
        path = self.folder.file_of(lesson)
        other = path.with_suffix(".swp")
        other.write_text(answer, encoding="utf-8")
        begin = time.perf_counter()
        other.replace(path)
        self.screen.expect_exact("checking…")
        noticed = time.perf_counter() - begin
        self.screen.expect_exact(end)
        return noticed, time.perf_counter() - begin

    def processor_time(self) -> float:
        """Seconds of processor time that the process has used."""
        fields = Path(f"/proc/{self.screen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Play, and print what was measured."""
    course = read_course(Path(sys.argv[1]) if len(sys.argv) > 1 else OWN_COURSE)
    with tempfile.TemporaryDirectory() as place:
        folder, _ = start_folder(Path(place) / "answers", course)
        player = Player(folder)
        player.screen.expect_exact("checking…")
        first_screen = time.perf_counter() - player.begin
        rows, noticed, times = [], [], list[float]()
        for lesson in course.lessons:
            at = player.screen.expect_exact([WRONG, RIGHT])
            if not times:
                first_verdict = time.perf_counter() - player.begin
            wrong = right = None
            if at == 0:
                if lesson.wrong:
                    soon, wrong = player.save(lesson, lesson.wrong[0].source, WRONG)
                    noticed.append(soon)
                soon, right = player.save(lesson, lesson.text("solution.py"), RIGHT)
                noticed.append(soon)
            times += [one for one in (wrong, right) if one is not None]
            rows.append([lesson.name, *("" if one is None else f"{1000 * one:.0f}" for one in (wrong, right))])
            if lesson != course.lessons[-1]:
                player.screen.send("n")
        before = player.processor_time()
        time.sleep(IDLE)
        waiting = (player.processor_time() - before) / IDLE
        player.screen.send("q")
        player.screen.expect(pexpect.EOF)
        done = sum(one.is_done for one in folder.progress.records().values())
    print(text_table(["exercise", "wrong, ms", "right, ms"], rows, 80, words=1))
    print(f"\n  {done} of {len(course.lessons)} exercises done; {len(times)} saves by rename")
    print(
        f"  from save to checking…: median {1000 * statistics.median(noticed):.0f} ms, most {1000 * max(noticed):.0f}"
    )
    print(f"  from save to verdict:   median {1000 * statistics.median(times):.0f} ms, most {1000 * max(times):.0f}")
    print(f"  cold start: first screen {first_screen:.1f} s, first verdict {first_verdict:.1f} s")
    print(f"  waiting takes {100 * waiting:.1f} % of a processor; load of the machine {os.getloadavg()[0]:.1f}")
    raise SystemExit(0 if done == len(course.lessons) else 1)


if __name__ == "__main__":
    main()
