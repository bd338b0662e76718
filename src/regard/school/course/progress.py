"""The learner's progress: a text file with a line for each exercise, replaced as a whole after every change.

    # Progress of regard learn, a line for each exercise.
    course: regard
    welcome      done  hints=0 attempts=1 date=2026-11-16 answer=0fd1…
    scale        open  hints=2 attempts=4 date=2026-11-16 answer=77ab…

Lines and words that are not known are kept as they are. The file is read anew before each change, under a lock, so that
`regard learn hint` in one terminal and `regard learn` in another do not lose each other's changes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.support.files import atomically

FILE = "progress.txt"
TEXTS = ("date", "answer", "solution", "reviewed")  # what a record has besides numbers
HEADING = "# Progress of regard learn, a line for each exercise."


@dataclass(frozen=True)
class ExerciseRecord:
    """What a learner has done in one exercise.

    >>> print(ExerciseRecord.read("scale  open  hints=2 attempts=4 date=2026-11-16 mood=good"))
    scale        open  hints=2 attempts=4 date=2026-11-16 mood=good
    """

    name: str
    state: str = "open"
    hints: int = 0  # levels that were shown
    attempts: int = 0  # answers that were checked, each counted once
    date: str = ""  # of the last change
    answer: str = ""  # start of the SHA-256 of the answer that was checked last, or that was right
    solution: str = ""  # "seen" if the solution was shown before the exercise was done
    reviews: int = 0  # how often it was right again, in a review
    reviewed: str = ""  # date of the last review
    others: tuple[str, ...] = ()  # words that are not known

    @property
    def is_done(self) -> bool:
        return self.state == "done"

    @classmethod
    def read(cls, line: str) -> ExerciseRecord | None:
        """The record in a line; None if it is another kind of line."""
        words = line.split()
        if len(words) < 2 or words[0].startswith("#") or words[0].endswith(":") or words[1] not in ("open", "done"):
            return None
        values: dict[str, Any] = {}
        others = []
        for word in words[2:]:
            name, _, value = word.partition("=")
            if name in ("hints", "attempts", "reviews") and value.isdecimal():
                values[name] = int(value)
            elif name in TEXTS and value:
                values[name] = value
            else:
                others.append(word)
        return cls(words[0], words[1], **values, others=tuple(others))

    def __str__(self) -> str:
        optional = [f"{name}={value}" for name in (*TEXTS, "reviews") if (value := getattr(self, name))]
        words = [f"hints={self.hints}", f"attempts={self.attempts}", *optional, *self.others]
        return f"{self.name:<12} {self.state}  {' '.join(words)}"


@dataclass(frozen=True)
class ProgressFile:
    """The file, and what it says now."""

    path: Path

    @classmethod
    def create(cls, path: Path, course: str) -> ProgressFile:
        """A new file, for a folder whose course is at `course`."""
        with atomically(path) as temporary:
            temporary.write_text(f"{HEADING}\ncourse: {course}\n", encoding="utf-8")
        return cls(path)

    @property
    def course(self) -> str:
        """Where the course is: "regard" for ours, or a folder."""
        for line in self._lines():
            if line.startswith("course:"):
                return line.removeprefix("course:").strip()
        raise ValueError(f"{self.path} does not say which course it is of; it needs a line such as: course: regard")

    def move_course(self, course: str) -> None:
        with self._changed() as lines:
            lines[:] = [f"course: {course}" if line.startswith("course:") else line for line in lines]

    @property
    def starts(self) -> dict[str, str]:
        """With which edition the file of an exercise began: the beginning of its hash."""
        line = next((line for line in self._lines() if line.startswith("starts:")), "")
        return dict(word.split("=", 1) for word in line.split()[1:] if "=" in word)

    def note_starts(self, starts: Mapping[str, str]) -> None:
        with self._changed() as lines:
            known = {**self.starts, **starts}
            lines[:] = [line for line in lines if not line.startswith("starts:")]
            lines.append(" ".join(["starts:", *(f"{name}={value}" for name, value in known.items())]))

    def records(self) -> dict[str, ExerciseRecord]:
        records = map(ExerciseRecord.read, self._lines())
        return {one.name: one for one in records if one is not None}

    def record(self, name: str) -> ExerciseRecord:
        """Of one exercise; an empty one if it has no line."""
        return self.records().get(name) or ExerciseRecord(name)

    def update(self, name: str, **changes: Any) -> ExerciseRecord:
        """Change the line of an exercise, or add it; `more_hints=1` and `more_attempts=1` add to what the file says."""
        with self._changed() as lines:
            places = {one.name: at for at, line in enumerate(lines) if (one := ExerciseRecord.read(line)) is not None}
            old, at = self.record(name), places.get(name, len(lines))
            for counter in ("hints", "attempts"):
                if more := changes.pop(f"more_{counter}", 0):
                    changes[counter] = getattr(old, counter) + more
            new = replace(old, **changes)
            lines[at : at + 1] = [str(new)]
        return new

    def _lines(self) -> list[str]:
        try:
            return self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            raise ValueError(f"{self.path} is gone; this writes it anew: regard learn start .") from None
        except UnicodeDecodeError:
            raise ValueError(f"{self.path} is not UTF-8 text; mend it, or move it away and start again") from None

    @contextmanager
    def _changed(self) -> Iterator[list[str]]:
        """The lines, to be changed; written at the end. One process at a time: the lock ends with the process."""
        handle = os.open(self.path.parent, os.O_RDONLY)
        try:
            with suppress(OSError):  # some network drives know no locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            lines = self._lines()
            yield lines
            with atomically(self.path) as temporary:
                temporary.write_text("\n".join([*lines, ""]), encoding="utf-8")
        finally:
            os.close(handle)
