"""`regard learn class`, as a teacher types it."""

import json

import pytest
from tiny_course import write_course
from typer.testing import CliRunner

from regard.cli import app
from regard.school.course.courses import read_course
from regard.school.course.learner import start_folder


@pytest.fixture
def a_class(tmp_path):
    course = read_course(write_course(tmp_path / "tiny"))
    learner = start_folder(tmp_path / "class" / "ada", course)[0]
    answer = "def twice(x):\n    return x * x\n"
    learner.note_checked(course.lesson("hello"), b"", True)
    learner.file_of(course.lesson("twice")).write_text(answer)
    learner.note_checked(course.lesson("twice"), answer.encode(), False)
    return tmp_path / "class"


def learn_class(*arguments):
    return CliRunner().invoke(app, ["learn", "class", *map(str, arguments)])


def test_the_answers_are_run_and_the_mistake_is_named(a_class, tmp_path):
    result = learn_class(a_class, "--course", tmp_path / "tiny")
    assert result.exit_code == 0, result.output
    assert "squared" in result.output
    assert "Most are at: twice (1)." in result.output


def test_nothing_is_run_when_asked_and_the_file_has_the_form_of_its_name(a_class, tmp_path):
    result = learn_class(a_class, "--course", tmp_path / "tiny", "--no-run", "-o", tmp_path / "class.json")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "class.json").read_text())["students"][0]["mistakes"] == []


def test_another_ending_is_refused(a_class, tmp_path):
    result = learn_class(a_class, "--course", tmp_path / "tiny", "-o", tmp_path / "class.txt")
    assert isinstance(result.exception, ValueError)
    assert "the overview of a class is CSV, HTML or JSON" in str(result.exception)
