"""The list of exercises in watch mode."""

import pytest
from tiny_course import write_course

from regard.commands.learning.lesson_picker import LessonPicker
from regard.commands.terminal.keyboard import DOWN, UP
from regard.school.course.courses import read_course
from regard.school.course.learner import start_folder


@pytest.fixture
def learner(tmp_path):
    folder = start_folder(tmp_path / "answers", read_course(write_course(tmp_path / "tiny")))[0]
    folder.progress.update("twice", state="done")
    return folder


def marked(picker):
    return [line for line in picker.text(80, 24).splitlines() if line.startswith(">")]


def test_arrows_choose_and_stop_at_both_ends(learner):
    picker = LessonPicker(learner, learner.course.lessons[0])
    names = []
    for key in (UP, DOWN, "j", "j", "k"):
        assert picker.press(key)
        names.append(picker.chosen.name)
    assert names == ["hello", "twice", "choose", "choose", "twice"]
    assert [line.split()[3] for line in marked(picker)] == ["twice"]


def test_only_those_that_are_not_done_are_shown_and_chosen(learner):
    picker = LessonPicker(learner, learner.course.lesson("twice"))
    picker.press("o")
    assert picker.chosen.name == "choose"
    assert "twice " not in picker.text(80, 24)
    for name in ("hello", "choose"):
        learner.progress.update(name, state="done")
    picker.press(DOWN)  # nothing is left, so all are shown again
    assert picker.chosen.name == "choose"
    assert "twice " in picker.text(80, 24)


def test_other_keys_are_not_for_the_list(learner):
    assert not LessonPicker(learner, learner.course.lessons[0]).press("x")


def test_a_small_screen_shows_what_is_around_the_chosen_one(learner):
    picker = LessonPicker(learner, learner.course.lesson("choose"))
    text = picker.text(80, 11)
    assert ">" in text
    assert "hello " not in text.partition("Next:")[0]
