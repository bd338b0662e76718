"""The course in a terminal."""

import sys

import pytest
import torch
from tiny_course import write_course

from regard.school.check.verdict import Finding
from regard.school.course.answers import CheckedAnswer
from regard.school.course.courses import read_course
from regard.school.course.learner import start_folder
from regard.school.drawing.lessons import (
    colored,
    course_status,
    hints_text,
    indented,
    lesson_heading,
    lesson_list,
    next_step,
    result_text,
    shown_path,
    split_after,
    ways_text,
)
from regard.school.exercises.answer import AnswerVerdict


@pytest.fixture
def learner(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return start_folder(tmp_path / "answers", read_course(write_course(tmp_path / "tiny")))[0]


def checked(verdict):
    return CheckedAnswer(verdict, 0.05)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_everything_keeps_to_the_width(learner, width):
    learner.progress.update("twice", hints=3, attempts=12, solution="seen")
    lesson = learner.course.lesson("twice")
    verdict = AnswerVerdict("twice", "Double a tensor", printed="x" * 200, pictures=[torch.rand(5, 5)])
    texts = [
        lesson_list(learner, width),
        course_status(learner, width),
        next_step(learner, width),
        lesson_heading(learner, lesson, width, with_task=True),
        hints_text(lesson, list(lesson.hints.items()), width),
        result_text(lesson, checked(verdict), width),
    ]
    assert max(len(line) for text in texts for line in text.splitlines()) <= width


def test_a_list_shows_hints_and_attempts_in_full(learner):
    learner.progress.update("twice", hints=3, attempts=12)
    vars(learner.course.lesson("twice"))["title"] = "A title that is longer than its place in the list " * 2
    for width in (80, 62):
        (line,) = [one for one in lesson_list(learner, width).splitlines() if " twice " in one]
        assert line.endswith("  3 hints, 12 attempts")


def test_a_heading_names_the_file_and_on_request_the_task(learner):
    lesson = learner.course.lesson("twice")
    assert lesson_heading(learner, lesson, 80, with_task=False) == (
        "  Exercise 2 of 3 · Double a tensor\n  answers/02_twice.py"
    )
    assert "\n\n  Double a number of things.\n\n  Example:" in lesson_heading(learner, lesson, 80, with_task=True)


def test_what_is_not_written_yet_has_no_cross(learner):
    finding = Finding("not written yet", "Line 8 is not written yet.", line=8, code="result = ...")
    verdict = AnswerVerdict("02_twice.py", "", [finding], file="answers/02_twice.py")
    assert result_text(learner.course.lesson("twice"), checked(verdict), 80) == (
        "  · Line 8 is not written yet.\n\n    02_twice.py:8   result = ..."
    )


def test_a_wrong_answer_is_the_verdict_and_what_was_printed(learner):
    verdict = AnswerVerdict(
        "twice", "", [Finding("squared", "It is x².")], printed="".join(f"{i}\n" for i in range(40))
    )
    text = result_text(learner.course.lesson("twice"), checked(verdict), 80)
    assert text.startswith("  Your code printed:\n    0\n    1\n")
    assert "    29\n    … and 10 lines more\n\n  ✗ twice: squared\n\n    It is x²." in text
    assert "Another way" not in text


def test_after_success_come_the_explanation_other_ways_and_the_weights(learner):
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    verdict = AnswerVerdict("twice", "Double a tensor", pictures=[weights])
    text = result_text(learner.course.lesson("twice"), checked(verdict), 80)
    order = ["✓ twice is right", "2·x = x + x.", "Your weights", "0.75", "Another way, by product:", "by sum of list"]
    assert sorted(order, key=text.index) == order
    assert "Next:" not in text
    assert "Another way" not in result_text(learner.course.lesson("twice"), checked(verdict), 80, with_ways=False)


def test_another_way_is_shown_as_it_is_written(tmp_path):
    way = "Another way, by product:\n\n```python\ndef twice(x):\n    # no helper\n    return 2 * x\n```\n\n"
    after = f"\n# after\n\nIt is a sum.\n\n{way}Next: a question.\n"
    lesson = read_course(write_course(tmp_path, {"twice/words.md": after})).lesson("twice")
    assert ways_text(lesson, 80) == (
        "  Another way, by product:\n\n    def twice(x):\n        # no helper\n        return 2 * x"
    )


def test_the_next_step_is_that_of_the_explanation_where_it_follows(learner):
    hello, _, choose = learner.course.lessons
    assert (
        next_step(learner, 80, after=hello, how="press n")
        == "  Next: write something.\n  answers/02_twice.py   press n"
    )
    learner.progress.update("twice", state="done")
    assert next_step(learner, 80, after=hello).startswith("  Next: What a softmax makes.\n  answers/03_choose.py")
    for lesson in (hello, choose):
        learner.progress.update(lesson.name, state="done")
    assert next_step(learner, 80, after=choose) == (
        "  All 3 exercises are done. For your teacher: regard learn status --json"
    )


def test_an_explanation_without_a_next_line_is_all_explanation():
    assert split_after("One.\nTwo.") == ("One.\nTwo.", "")
    assert split_after("Next: only this.") == ("", "only this.")


def test_code_and_prose_are_wrapped_and_code_is_indented_further():
    wrapped = "      return a_long_name\n          + another"
    assert indented("    return a_long_name + another", 25, "  ", then="    ") == wrapped
    assert indented("    a b c d e f g h", 14) == "      a b c d\n      e f g h"


def test_a_path_is_shown_from_here_or_in_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown_path(tmp_path / "a" / "b.py") == "a/b.py"
    assert shown_path(tmp_path.parent / "b.py") == str(tmp_path.parent / "b.py")


def test_only_verdicts_have_color_and_only_in_a_terminal(monkeypatch):
    text = "  ✓ right\n  ✗ wrong\n  text"
    assert colored(text) == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colored(text) == "\x1b[32m  ✓ right\x1b[0m\n\x1b[31m  ✗ wrong\x1b[0m\n  text"
    monkeypatch.setenv("NO_COLOR", "1")
    assert colored(text) == text
