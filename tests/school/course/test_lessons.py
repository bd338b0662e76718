"""Our course checks itself: every exercise, as `regard learn verify` does it."""

import pytest
import torch

from regard.school.course.answers import AnswerChecker
from regard.school.course.courses import OWN_COURSE, read_course
from regard.school.course.verification import verify_course, verify_lesson
from sampled import quick_every

COURSE = read_course(OWN_COURSE)


@pytest.fixture(scope="module")
def checker():
    with AnswerChecker() as checker:
        yield checker


def test_the_course_names_its_folders_and_has_no_stray_files():
    assert verify_course(COURSE) == []
    assert COURSE.is_own


@pytest.mark.parametrize("lesson", quick_every(4, COURSE.lessons, lambda lesson: lesson.name))
def test_an_exercise_fails_unsolved_passes_solved_and_names_wrong_answers(lesson, checker):
    assert verify_lesson(lesson, checker).faults == []


def test_the_reach_that_why_attention_tells_is_what_its_solution_measures():
    lesson = COURSE.lesson("why_attention")
    names = {"__name__": "solution"}
    exec(lesson.text("solution.py"), names)
    told = {line.split()[0].lower(): line.split()[1] for line in lesson.after.splitlines() if line.startswith("    ")}
    torch.manual_seed(0)
    for kind in ("rnn", "gru", "attention"):
        lengths = [names["run"](kind, 32) for _ in range(200)]
        mean = sum(float(one[0] / one[-1]) for one in lengths) / len(lengths)
        digits = len(told[kind].partition(".")[2])
        assert f"{mean:.{digits}f}" == told[kind]
