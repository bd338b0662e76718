"""Review: exercises that were done are asked again after 1, 3, 7 and 21 days, in a folder of their own.

`review/` in the learner's folder is a learner's folder, too, for the exercises that are due. What was right there is
noted in the progress of the course: `reviews=2 reviewed=2026-11-20`.
"""

from __future__ import annotations

import datetime
from dataclasses import replace

from regard.school.course.courses import Course, Lesson
from regard.school.course.learner import OWN, LearnerFolder, today
from regard.school.course.progress import FILE, ExerciseRecord, ProgressFile

FOLDER = "review"
DAYS = (1, 3, 7, 21)  # from the day that it was done, and then from the review before


def due_date(record: ExerciseRecord) -> str | None:
    """The day from which an exercise may be reviewed; None if it is not done, or was reviewed often enough.

    >>> due_date(ExerciseRecord("scale", "done", date="2026-11-16", reviews=1, reviewed="2026-11-17"))
    '2026-11-20'
    """
    if not record.is_done or record.reviews >= len(DAYS):
        return None
    try:
        since = datetime.date.fromisoformat(record.reviewed or record.date)
    except ValueError:  # a date that somebody wrote by hand
        return today()
    return (since + datetime.timedelta(days=DAYS[record.reviews])).isoformat()


def due_lessons(folder: LearnerFolder) -> list[Lesson]:
    """The exercises to be reviewed now, those first that are due for the longest time."""
    due = [(date, lesson.number, lesson) for lesson, date in _dates(folder) if date <= today()]
    return [lesson for _, _, lesson in sorted(due, key=lambda one: one[:2])]


def next_date(folder: LearnerFolder) -> str | None:
    """The first day on which something is due; None if nothing ever is."""
    return min((date for _, date in _dates(folder)), default=None)


def start_review(folder: LearnerFolder) -> LearnerFolder | None:
    """The folder of what is due now, each exercise as at the beginning; None if nothing is due."""
    lessons = due_lessons(folder)
    if not lessons:
        return None
    review = _review_folder(folder, lessons)
    review.path.mkdir(exist_ok=True)
    if not (review.path / FILE).exists():
        place = folder.progress.course
        ProgressFile.create(review.path / FILE, place if place == OWN else str(folder.course.folder.resolve()))
    records = review.progress.records()
    for lesson in review.course.lessons:
        if lesson.name not in records or records[lesson.name].is_done:  # one that was begun goes on
            review.reset(lesson)
            review.progress.update(lesson.name, state="open", hints=0, attempts=0, answer="", date=today())
    return review


def note_reviews(folder: LearnerFolder) -> list[str]:
    """Note in the progress what was right in the review; the names of these exercises."""
    if not (folder.path / FOLDER / FILE).exists():
        return []
    known, right = folder.progress.records(), []
    for one in ProgressFile(folder.path / FOLDER / FILE).records().values():
        before = known.get(one.name)
        if one.is_done and before is not None and (due := due_date(before)) is not None and one.date >= due:
            folder.progress.update(one.name, reviews=before.reviews + 1, reviewed=one.date)
            right.append(one.name)
    return right


def _dates(folder: LearnerFolder) -> list[tuple[Lesson, str]]:
    pairs = zip(folder.course.lessons, folder.records(), strict=True)
    return [(lesson, date) for lesson, record in pairs if (date := due_date(record)) is not None]


def _review_folder(folder: LearnerFolder, lessons: list[Lesson]) -> LearnerFolder:
    numbered = tuple(replace(one, number=number) for number, one in enumerate(lessons, 1))
    course = Course(folder.course.folder, f"Review: {folder.course.title}", numbered, command="regard learn review")
    return LearnerFolder(folder.path / FOLDER, course)
