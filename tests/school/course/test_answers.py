"""Checking a learner's file in a warm process, and noting what came of it."""

import pytest
from tiny_course import write_course

from regard.school.course.answers import OLDER, AnswerChecker, check_learner
from regard.school.course.courses import read_course
from regard.school.course.learner import short_hash, start_folder
from regard.school.course.progress import ProgressFile
from regard.school.drawing.lessons import result_text


@pytest.fixture(scope="module")
def checker():
    with AnswerChecker() as checker:
        yield checker


def answer(learner, name, text):
    lesson = learner.course.lesson(name)
    learner.file_of(lesson).write_text(text)
    return lesson


def test_what_is_not_written_yet_is_no_attempt(learner, checker):
    checked = check_learner(learner, learner.course.lesson("twice"), checker)
    assert (checked.is_untouched, checked.verdict.status) == (True, "wrong")
    assert learner.progress.records() == {}


def test_a_wrong_answer_is_named_and_counted_and_a_right_one_is_done(learner, checker):
    lesson = answer(learner, "twice", "def twice(x):\n    return x * x\n")
    checked = check_learner(learner, lesson, checker)
    assert (checked.is_untouched, checked.verdict.mistakes[0].name) == (False, "squared")
    assert learner.progress.record("twice").attempts == 1
    answer(learner, "twice", "def twice(x):\n    return x + x\n")
    checked = check_learner(learner, lesson, checker)
    assert checked.verdict.is_right
    assert checked.verdict.pictures[0].shape == (5, 5)
    record = learner.progress.record("twice")
    assert (record.state, record.attempts) == ("done", 2)


def test_a_broken_program_as_it_was_given_is_no_attempt(tmp_path, checker):
    broken = '"""Mend it."""\n\n\ndef twice(x):\n    return x\n'
    course = read_course(write_course(tmp_path / "tiny", {"twice/start.py": broken}))
    learner = start_folder(tmp_path / "answers", course)[0]
    checked = check_learner(learner, course.lesson("twice"), checker)
    assert (checked.is_untouched, checked.verdict.mistakes[0].name) == (True, "not doubled")
    assert learner.progress.records() == {}


def test_an_exercise_that_passes_unsolved_is_done_at_once(learner, checker):
    assert check_learner(learner, learner.course.lesson("hello"), checker).verdict.is_right
    assert learner.current().name == "twice"


def test_a_file_that_is_not_there_says_how_to_get_it_back(learner, checker):
    lesson = learner.course.lesson("twice")
    learner.file_of(lesson).unlink()
    with pytest.raises(ValueError, match=r"02_twice\.py is not there; write it again: regard learn reset twice"):
        check_learner(learner, lesson, checker)


def test_an_own_answer_may_import_regard_and_a_confined_one_may_not(learner, checker):
    lesson = answer(learner, "twice", "import regard.steps\n\ndef twice(x):\n    return x + x\n")
    assert checker.check(lesson, learner.file_of(lesson)).verdict.is_right
    with AnswerChecker(confined=True) as confined:
        verdict = confined.check(lesson, learner.file_of(lesson)).verdict
    assert not verdict.is_right


def test_the_file_is_read_when_it_is_checked(learner, checker, monkeypatch):
    lesson = answer(learner, "twice", "def twice(x):\n    return x * x\n")
    warm = checker.exercise

    def save_meanwhile(lesson):
        answer(learner, "twice", "def twice(x):\n    return x + x\n")
        return warm(lesson)

    monkeypatch.setattr(checker, "exercise", save_meanwhile)
    assert check_learner(learner, lesson, checker).verdict.is_right
    assert learner.progress.record("twice").answer == short_hash(learner.file_of(lesson).read_bytes())


def test_a_verdict_is_shown_although_it_cannot_be_noted(learner, checker, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ProgressFile, "update", refuse)
    checked = check_learner(learner, answer(learner, "twice", "def twice(x):\n    return x + x\n"), checker)
    assert checked.verdict.is_right
    text = result_text(learner.course.lesson("twice"), checked, 80)
    assert text.startswith("  ✓ twice is right")
    assert text.endswith("  ! This was not noted: [Errno 13] Permission denied.")


def test_a_file_of_an_older_edition_is_noticed_and_no_attempt(course, learner, checker):
    lesson = course.lesson("twice")
    (lesson.folder / "start.py").write_text(lesson.text("start.py").replace("number of things", "row of numbers"))
    checked = check_learner(learner, lesson, checker)
    assert (checked.is_untouched, learner.progress.records()) == (True, {})
    assert checked.note == f"{OLDER} regard learn reset twice writes it anew, and keeps yours."
    learner.reset(lesson)
    assert check_learner(learner, lesson, checker).note == ""


def test_a_broken_program_of_an_older_edition_is_no_attempt(tmp_path, checker):
    broken = '"""Mend it."""\n\n\ndef twice(x):\n    return x\n'
    course = read_course(write_course(tmp_path / "tiny", {"twice/start.py": broken}))
    learner = start_folder(tmp_path / "answers", course)[0]
    (course.folder / "twice" / "start.py").write_text(broken.replace("Mend", "Repair"))
    checked = check_learner(learner, course.lesson("twice"), checker)
    assert (checked.is_untouched, learner.progress.records()) == (True, {})
