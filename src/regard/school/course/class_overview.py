"""Where everybody in a class is: the folders of learners, side by side, and what is wrong with what they work on now.

Progress is what the learners' own files say. What is wrong is found out by running the answers here, in the sandbox.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from regard.school.course.answers import AnswerChecker
from regard.school.course.courses import Course, Lesson
from regard.school.course.learner import LearnerFolder, is_learners
from regard.school.course.progress import FILE

DEEPEST = 3  # folders between that of the class and a progress.txt
LARGEST = 1 << 20  # bytes of a progress.txt
STATES = ("done", "now", "tried", "")  # of an exercise: "now" is the first that is not done


@dataclass(frozen=True)
class ClassMember:
    """One learner. states: of each exercise of the course, one of STATES. mistakes: of the answer to `current`."""

    name: str
    folder: Path | None = None
    states: tuple[str, ...] = ()
    current: str = ""  # an exercise; "" if all are done, or there is no course
    attempts: int = 0  # at the current exercise
    hints: int = 0  # of all exercises
    solutions: int = 0  # seen before the exercise was done
    date: str = ""  # of the last change
    mistakes: tuple[str, ...] = ()
    problem: str = ""  # why nothing is known

    @property
    def done(self) -> int:
        return self.states.count("done")


def read_class(folder: Path, course: Course) -> list[ClassMember]:
    """The learners in a folder: each folder in it is one, and has the folder of the course in it, or is it."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; give the one that holds a folder for each student")
    members = [_member(one, course) for one in sorted(folder.iterdir()) if one.is_dir() and one.name[0] not in "._"]
    if not members:
        raise ValueError(f"{folder} holds no folders; it needs one for each student, with progress.txt in it")
    return members


def _member(place: Path, course: Course) -> ClassMember:
    found = [one for one in _folders(place, DEEPEST) if is_learners(one)]
    if len(found) != 1:
        names = ", ".join(str(one.relative_to(place)) for one in found)
        problem = f"several courses: {names}" if found else f"no {FILE}; not started, or not handed in"
        return ClassMember(place.name, problem=problem)
    learner = LearnerFolder(found[0], course)
    if (size := learner.progress.path.stat().st_size) > LARGEST:
        return ClassMember(place.name, problem=f"{FILE} has {size} bytes; at most {LARGEST} are read")
    try:
        records = learner.records()
    except ValueError as error:
        return ClassMember(place.name, problem=str(error))
    current = learner.current()
    states = tuple(
        "done" if one.is_done else "now" if current and one.name == current.name else "tried" if one.attempts else ""
        for one in records
    )
    return ClassMember(
        place.name,
        found[0],
        states,
        current.name if current else "",
        sum(one.attempts for one in records if current and one.name == current.name),
        sum(one.hints for one in records),
        sum(bool(one.solution) for one in records),
        max((one.date for one in records), default=""),
    )


def _folders(place: Path, depth: int) -> Iterator[Path]:
    """A folder and those below it; no links, which may lead anywhere, and nothing in the folder of a course."""
    yield place
    if depth and not is_learners(place):
        for one in sorted(place.iterdir()):
            if one.is_dir() and not one.is_symlink():
                yield from _folders(one, depth - 1)


def with_mistakes(member: ClassMember, course: Course, checker: AnswerChecker) -> ClassMember:
    """The member, with what is wrong with the answer that they work on, if there is one."""
    if member.folder is None or not member.current:
        return member
    lesson = course.lesson(member.current)
    path = LearnerFolder(member.folder, course).file_of(lesson)
    if not path.is_file() or path.is_symlink():
        return replace(member, mistakes=(f"no file {path.name}",))
    return replace(member, mistakes=tuple(_mistakes(checker, lesson, path)))


def _mistakes(checker: AnswerChecker, lesson: Lesson, path: Path) -> Iterator[str]:
    checked = checker.check(lesson, path)
    if checked.is_untouched:
        return
    verdict = checked.verdict
    if verdict.is_right:
        yield "right, not checked by them yet"
    for one in verdict.mistakes:
        yield one.name or "a mistake without a name"
    if verdict.problem and not verdict.mistakes:
        yield verdict.problem


def common_mistakes(members: list[ClassMember]) -> list[tuple[str, str, list[str]]]:
    """Exercise, mistake and who makes it; the most frequent first."""
    counts = Counter((one.current, mistake) for one in members for mistake in one.mistakes)
    return [
        (*pair, [one.name for one in members if one.current == pair[0] and pair[1] in one.mistakes])
        for pair, _ in counts.most_common()
    ]
