"""The picture of the course: every exercise that has one draws the cat out of the code that passes it."""

import pytest
import torch

from regard.school.course.answers import AnswerChecker
from regard.school.course.courses import OWN_COURSE, read_course
from regard.school.drawing.lessons import result_text
from regard.school.exercises import cat
from regard.school.exercises.exercise import load_exercise

LESSONS = [one for one in read_course(OWN_COURSE).lessons if load_exercise(one.folder).picture is not None]


@pytest.fixture(scope="module")
def drawn():
    """The verdict on a solution, and what is shown."""
    with AnswerChecker() as checker:

        def check(lesson, folder):
            path = folder / lesson.file_name
            path.write_text(lesson.text("solution.py"))
            return checker.check(lesson, path)

        yield check


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_solution_is_drawn_with_words_and_fits_the_terminal(lesson, drawn, tmp_path):
    checked = drawn(lesson, tmp_path)
    assert checked.verdict.drawn is not None
    text = result_text(lesson, checked, 80)
    assert "The  cat  sat" in text
    assert max(map(len, text.splitlines())) <= 80
    rows = checked.verdict.drawn.weights
    assert bool(rows.isfinite().all())
    if lesson.name not in ("dropout", "nan_row"):  # where rows need not sum to 1
        torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:-1]), rtol=0, atol=2e-3)


def test_a_layer_is_drawn_by_its_own_weights(drawn, tmp_path):
    lesson = next(one for one in LESSONS if one.name == "whole_layer")
    weights = drawn(lesson, tmp_path).verdict.drawn.weights
    future = torch.ones(6, 6, dtype=torch.bool).triu(1)
    expected = torch.stack([cat.scores(head).masked_fill(future, -torch.inf).softmax(-1) for head in (0, 1)])
    torch.testing.assert_close(weights, expected)


def test_a_right_answer_that_cannot_be_called_for_it_has_no_picture(drawn, tmp_path):
    lesson = next(one for one in LESSONS if one.name == "matrices_for_loops")
    path = tmp_path / "answer.py"
    path.write_text(lesson.text("solution.py").replace("    scores", "    assert x[0, 0] != 1\n    scores", 1))
    with AnswerChecker() as checker:
        verdict = checker.check(lesson, path).verdict
    assert (verdict.is_right, verdict.drawn) == (True, None)
