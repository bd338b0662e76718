"""Checking a learner's file in a warm process, and noting what came of it."""

import pytest
from tiny_course import write_course

from regard.school.course.answers import AnswerChecker, check_learner
from regard.school.course.courses import read_course
from regard.school.course.learner import start_folder


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
