"""Review: exercises that are done are asked again, later and later."""

import datetime

import pytest

from regard.school.course import review
from regard.school.course.progress import ExerciseRecord
from regard.school.course.review import due_date, due_lessons, next_date, note_reviews, start_review


@pytest.fixture
def on(monkeypatch):
    """Sets what day it is."""

    def choose(day):
        monkeypatch.setattr(review, "today", lambda: day)
        monkeypatch.setattr("regard.school.course.learner.today", lambda: day)

    choose("2026-11-16")
    return choose


@pytest.fixture
def done(learner, on):
    """Two of three exercises are done, one of them a day later."""
    learner.progress.update("hello", state="done", date="2026-11-16")
    learner.progress.update("twice", state="done", date="2026-11-17")
    return learner


def test_the_days_between_reviews_grow():
    record, days = ExerciseRecord("scale", "done", date="2026-11-16"), []
    while date := due_date(record):
        days.append(date)
        record = ExerciseRecord("scale", "done", date="2026-11-16", reviews=record.reviews + 1, reviewed=date)
    assert days == ["2026-11-17", "2026-11-20", "2026-11-27", "2026-12-18"]  # 1, 3, 7 and 21 days
    assert due_date(ExerciseRecord("scale", date="2026-11-16")) is None


def test_a_date_that_is_none_makes_an_exercise_due(on):
    assert due_date(ExerciseRecord("scale", "done", date="yesterday")) == "2026-11-16"


def test_only_what_is_done_becomes_due_the_longest_first(done, on):
    assert [one.name for one in due_lessons(done)] == []
    assert next_date(done) == "2026-11-17"
    on("2026-11-18")
    assert [one.name for one in due_lessons(done)] == ["hello", "twice"]
    assert start_review(learner_without(done)) is None


def learner_without(done):
    """The same folder, with nothing done."""
    for name in ("hello", "twice"):
        done.progress.update(name, state="open")
    return done


def test_a_review_begins_with_the_first_files_and_goes_on_where_it_was_left(done, on):
    on("2026-11-18")
    folder = start_review(done)
    assert folder.path == done.path / "review"
    twice = folder.course.lesson("twice")
    assert (twice.number, folder.file_of(twice).name) == (2, "02_twice.py")
    assert folder.file_of(twice).read_text() == twice.text("start.py")
    folder.file_of(twice).write_text("half of it\n")
    assert start_review(done).file_of(twice).read_text() == "half of it\n"


def test_what_was_right_is_noted_once_and_due_later(done, on):
    on("2026-11-18")
    folder = start_review(done)
    folder.note_checked(folder.course.lesson("hello"), b"right", True)
    assert note_reviews(done) == ["hello"]
    assert note_reviews(done) == []
    record = done.progress.record("hello")
    assert (record.state, record.reviews, record.reviewed) == ("done", 1, "2026-11-18")
    assert [one.name for one in due_lessons(done)] == ["twice"]
    on("2026-11-21")
    assert [one.name for one in due_lessons(done)] == ["twice", "hello"]
    again = start_review(done)
    hello = again.course.lesson("hello")
    assert not again.progress.record("hello").is_done
    assert datetime.date.fromisoformat(again.progress.record("hello").date) == datetime.date(2026, 11, 21)
    assert again.file_of(hello).with_name(f"{again.file_of(hello).name}.old-1").exists()  # nothing is overwritten


def test_without_a_review_nothing_is_noted(done):
    assert note_reviews(done) == []
