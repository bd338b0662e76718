"""The learner's folder: one file for each exercise, and the progress. What a learner wrote is never overwritten."""

from __future__ import annotations

import datetime
import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from regard.school.course.courses import LEVELS, OWN_COURSE, Course, Lesson, read_course
from regard.school.course.progress import FILE, HEADING, ExerciseRecord, ProgressFile

EVERY = 0.05  # seconds between two looks at the learner's files
Signature = tuple[int, int, int] | None  # time of change, size and inode; None where there is no file
OWN = "regard"  # how progress.txt names our course, which lies elsewhere on every machine


@dataclass(frozen=True)
class LearnerFolder:
    """A folder in which somebody works through a course."""

    path: Path
    course: Course

    @property
    def progress(self) -> ProgressFile:
        return ProgressFile(self.path / FILE)

    def file_of(self, lesson: Lesson) -> Path:
        """The learner's file for an exercise, whatever number it had when it was written."""
        for path in sorted(self.path.glob(f"*_{lesson.name}.py")):
            if re.fullmatch(rf"\d+_{lesson.name}\.py", path.name):
                return path
        return self.path / lesson.file_name

    def files(self) -> dict[str, Path]:
        return {lesson.name: self.file_of(lesson) for lesson in self.course.lessons}

    def write_missing(self) -> list[Path]:
        """Write the files that do not exist yet, and return them."""
        missing = [(one, path) for one in self.course.lessons if not (path := self.file_of(one)).exists()]
        for lesson, path in missing:
            _write(path, lesson.text("start.py"))
        if missing:
            self.progress.note_starts({lesson.name: start_hash(lesson) for lesson, _ in missing})
        return [path for _, path in missing]

    def reset(self, lesson: Lesson) -> Path | None:
        """Write the file of an exercise anew, and return where the old one was moved to; None if there was none."""
        path, text, old = self.file_of(lesson), lesson.text("start.py"), None
        if path.exists():
            old = next(one for n in range(1, 10**6) if not (one := path.with_name(f"{path.name}.old-{n}")).exists())
            path.rename(old)
        _write(path, text)
        self.progress.note_starts({lesson.name: start_hash(lesson)})
        if lesson.name in self.progress.records():
            self.progress.update(lesson.name, state="open", date=today(), answer="")
        return old

    def edition_of(self, lesson: Lesson, answer: bytes) -> str:
        """Was the file begun by another edition of the course: "untouched", "changed", or "" if not or unknown?"""
        try:
            start = self.progress.starts.get(lesson.name)
        except (OSError, ValueError):
            return ""
        if start is None or start == start_hash(lesson):
            return ""
        return "untouched" if short_hash(answer).startswith(start) else "changed"

    def records(self) -> list[ExerciseRecord]:
        """What was done in each exercise, in their order."""
        known = self.progress.records()
        return [known.get(one.name, ExerciseRecord(one.name)) for one in self.course.lessons]

    def current(self) -> Lesson | None:
        """The first exercise that is not done; None if all are."""
        return self.after(None)

    def after(self, lesson: Lesson | None) -> Lesson | None:
        """The next exercise that is not done: after this one, or else from the beginning; None if all are done."""
        done = {one.name for one in self.records() if one.is_done}
        others = [one for one in self.course.lessons if one.name not in done and one != lesson]
        later = [one for one in others if lesson is not None and one.number > lesson.number]
        return next(iter(later or others), None)

    def next_hint(self, lesson: Lesson) -> list[tuple[str, str]]:
        """The hints so far and one more, which is counted: pairs of level and text."""
        levels = [level for level in LEVELS if level in lesson.hints]
        record = self.progress.record(lesson.name)
        if not record.is_done and record.hints < len(levels):
            record = self.progress.update(lesson.name, more_hints=1, date=today())
        count = len(levels) if record.is_done else record.hints
        return [(level, lesson.hints[level]) for level in levels[:count]]

    def note_checked(self, lesson: Lesson, answer: bytes, is_right: bool) -> None:
        """Note a checked answer. The same answer once more is no new attempt; what was done stays done."""
        record, digest = self.progress.record(lesson.name), short_hash(answer)
        is_new, is_open = digest != record.answer, not record.is_done
        if (is_new and is_open) or (is_right and (is_new or is_open)):
            state, more = "done" if is_right else "open", int(is_new and is_open)
            self.progress.update(lesson.name, state=state, date=today(), answer=digest, more_attempts=more)

    def note_solution(self, lesson: Lesson) -> None:
        """Note that the solution was shown; after success, that means nothing."""
        if not self.progress.record(lesson.name).is_done:
            self.progress.update(lesson.name, solution="seen", date=today())


def start_folder(path: Path, course: Course) -> tuple[LearnerFolder, list[Path]]:
    """Make a learner's folder, or add what is missing in it; the folder, and the files that were written."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; give the name of a folder")
    if path.resolve() == course.folder.resolve() or course.folder.resolve() in path.resolve().parents:
        raise ValueError(f"{path} is the course itself, or in it; answers go elsewhere: regard learn start FOLDER")
    for above in path.resolve().parents:
        if is_learners(above):
            raise ValueError(f"{path} would be inside {above}, which is a course already; go on there: regard learn")
    if (path / FILE).exists():
        folder = open_folder(path)
        if folder.course.folder.resolve() != course.folder.resolve():
            raise ValueError(f"{path} belongs to the course {folder.course.title}; choose another folder")
    else:
        path.mkdir(parents=True, exist_ok=True)
        ProgressFile.create(path / FILE, _place(course))
        folder = LearnerFolder(path, course)
    return folder, folder.write_missing()


def find_folder(near: Path, course: Path | None = None) -> LearnerFolder:
    """The learner's folder: this one, or the only one in it. `course`: where the course is, if it has moved."""
    if is_learners(near):
        return open_folder(near, course)
    inside = sorted(one for one in near.iterdir() if one.is_dir() and is_learners(one))
    if len(inside) > 1:
        names = ", ".join(one.name for one in inside)
        raise ValueError(f"there are several courses here: {names}; go into one of them, as in: cd {inside[0].name}")
    if inside:
        return open_folder(inside[0], course)
    opened = read_course(course or OWN_COURSE)
    if has_answers(near, opened):
        again = "regard learn start ." + ("" if course is None else f" --course {course}")
        raise ValueError(f"your files are here, but {FILE} is missing; {again} writes it anew")
    for above in near.resolve().parents:
        if is_learners(above):
            raise ValueError(f"the course is in the folder above, {above}; go there: cd {os.path.relpath(above, near)}")
    raise ValueError(
        "there is no course in this folder; cd into the folder of your course, or start one here: regard learn start"
    )


def open_folder(path: Path, course: Path | None = None) -> LearnerFolder:
    """A learner's folder with its course, which progress.txt names."""
    progress = ProgressFile(path / FILE)
    if course is not None:
        opened = read_course(course)
        if progress.course != _place(opened):
            progress.move_course(_place(opened))
        return LearnerFolder(path, opened)
    place = OWN_COURSE if progress.course == OWN else path / progress.course
    if not place.is_dir():
        raise ValueError(f"the course of {path}, {place}, is not there; if it has moved: regard learn --course FOLDER")
    return LearnerFolder(path, read_course(place))


def default_folder(course: Course, near: Path) -> Path:
    """Where the learner's files go, unless they say so: here, if they are here already, else into a folder in it."""
    if is_learners(near) or has_answers(near, course):
        return near
    return near / Path("attention-course" if course.is_own else f"{course.folder.resolve().name}-answers")


def has_answers(path: Path, course: Course) -> bool:
    """Are at least half of the files of a course in this folder, so that somebody has started it here?"""
    return 2 * sum((path / one.file_name).is_file() for one in course.lessons) >= len(course.lessons)


def short_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def start_hash(lesson: Lesson) -> str:
    """Which edition of an exercise a file begins with."""
    return short_hash(lesson.text("start.py").encode())[:8]


def today() -> str:
    return datetime.date.today().isoformat()


def is_learners(path: Path) -> bool:
    """Has somebody started a course in this folder?"""
    try:
        with (path / FILE).open(encoding="utf-8", errors="replace") as file:
            return file.readline().rstrip() == HEADING
    except OSError:
        return False


def _place(course: Course) -> str:
    return OWN if course.is_own else str(course.folder.resolve())


def _write(path: Path, text: str) -> None:
    """Write a file that does not exist; complete, or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    temporary.write_text(text, encoding="utf-8")
    try:
        os.link(temporary, path)  # unlike a rename, it never replaces what is there
    except FileExistsError:
        raise ValueError(f"{path} exists already; nothing was written") from None
    except OSError:  # a file system without links
        if path.exists():
            raise ValueError(f"{path} exists already; nothing was written") from None
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


class SavedFiles:
    """Tells which files were saved with new content, by looking at them: works in every folder, under any editor.

    An editor may write a file in place, or write another one and rename it. Either way a file counts as saved when it
    has stopped changing, and only if its content is not what was seen last. Call `saved()` every 0.05 s.
    """

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths, self._contents = dict(paths), dict[str, bytes | None]()
        self._seen, self._settled = dict[str, Signature](), dict[str, Signature]()
        for name in paths:
            self.note(name)

    def saved(self) -> list[str]:
        """The names of files that have new content and were not written to since the last look."""
        result = []
        for name, path in self._paths.items():
            before, now = self._seen[name], _signature(path)
            self._seen[name] = now
            if now is None or now != before or now == self._settled[name]:
                continue
            self._settled[name] = now
            content = _content(path)
            if content is not None and content != self._contents[name]:
                self._contents[name] = content
                result.append(name)
        return result

    def note(self, name: str) -> None:
        """Take the content of a file as seen, because it is about to be checked."""
        self._seen[name] = self._settled[name] = _signature(self._paths[name])
        self._contents[name] = _content(self._paths[name])


def _signature(path: Path) -> Signature:
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return None


def _content(path: Path) -> bytes | None:
    with suppress(OSError):
        return path.read_bytes()
    return None
