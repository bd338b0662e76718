"""What `regard learn verify` and `regard learn status --verify` print."""

import json
from contextlib import nullcontext

import pytest
from tiny_course import BY_PRODUCT, FILES, write_course
from typer.testing import CliRunner

from regard.cli import app
from regard.school.course.answers import AnswerChecker
from regard.school.course.certificate import make_certificate
from regard.school.course.courses import read_course
from regard.school.course.learner import start_folder


def learn(*arguments):
    return CliRunner().invoke(app, ["learn", *map(str, arguments)])


@pytest.fixture(scope="module")
def checker():
    with AnswerChecker() as checker:
        yield checker


@pytest.fixture
def one_worker(checker, monkeypatch):
    monkeypatch.setattr("regard.commands.learning.verifying.AnswerChecker", lambda: nullcontext(checker))


@pytest.mark.usefixtures("one_worker")
def test_a_course_that_is_right_is_a_table_and_a_sentence(tmp_path):
    result = learn("verify", write_course(tmp_path / "tiny"))
    assert result.exit_code == 0, result.output
    assert "  ✓  twice                       3           2" in result.output
    assert "3 exercises, 6 wrong answers named, 2 other ways: nothing is wrong." in result.output


@pytest.mark.usefixtures("one_worker")
def test_faults_are_listed_by_exercise_and_one_exercise_may_be_checked_alone(tmp_path):
    changes = {
        "twice/notes.txt": "x",
        "stray.md": "x",
        "twice/words.md": FILES["twice/words.md"].replace(BY_PRODUCT, ""),
    }
    folder = write_course(tmp_path / "tiny", changes)
    result = learn("verify", folder)
    assert result.exit_code == 1
    assert "  ✗ tiny: stray.md is not named in course.toml\n" in result.output
    assert "  ✗ twice: stray file: notes.txt\n  ✗ twice: words.md has 1 other ways; at least 2\n" in result.output
    assert "3 faults." in result.output
    alone = learn("verify", folder / "twice", folder / "choose")
    assert alone.exit_code == 1
    assert "2 exercises, 6 wrong answers named, 1 other ways: 2 faults." in alone.output


@pytest.mark.usefixtures("one_worker")
def test_our_course_as_it_is_installed_says_that_its_wrong_answers_are_not_there(tmp_path, monkeypatch):
    folder = write_course(tmp_path / "tiny", {"twice/wrong.txt": None, "choose/wrong.txt": None})
    monkeypatch.setattr("regard.school.course.courses.OWN_COURSE", folder)
    result = learn("verify", folder)
    assert result.exit_code == 0, result.output
    assert "  ✓  twice                       –           2" in result.output
    assert "The wrong answers of our course were not checked: they are in wrong.txt" in result.output
    assert "3 exercises, 0 wrong answers named, 2 other ways: nothing is wrong." in result.output


@pytest.fixture
def certified(tmp_path):
    """A learner's folder and a certificate that says more than is true."""
    learner = start_folder(tmp_path / "answers", read_course(write_course(tmp_path / "tiny")))[0]
    (learner.path / "02_twice.py").write_text("import regard.steps\n\n\ndef twice(x):\n    return x + x\n")
    for name, hints in (("hello", 0), ("twice", 1), ("choose", 2)):
        learner.progress.update(name, state="done", hints=hints)
    (tmp_path / "ana.json").write_text(json.dumps(make_certificate(learner)))
    return learner


def test_a_certificate_is_run_again_and_what_is_not_right_is_told(certified, tmp_path):
    words = ("status", "--verify", tmp_path / "ana.json", "--answers", certified.path, "--course", tmp_path / "tiny")
    result = learn(*words)
    assert result.exit_code == 1
    assert "ana.json: for this course; made " in result.output
    assert "1 of 3 answers that it calls done were run again and are right." in result.output
    assert "it imports regard, which the sandbox hides" in result.output
    assert "if you trust who wrote them: add --unprotected" in result.output
    assert "2 hints" in result.output
    assert "not written yet" in result.output
    trusting = learn(*words, "--unprotected")
    assert "2 of 3 answers" in trusting.output
    assert "--unprotected" not in trusting.output


def test_a_perfect_student_whose_answers_import_regard_is_no_error(certified, tmp_path):
    certified.progress.update("choose", state="todo")
    certified.progress.update("hello", state="todo")
    (tmp_path / "ana.json").write_text(json.dumps(make_certificate(certified)))
    words = ("status", "--verify", tmp_path / "ana.json", "--answers", certified.path, "--course", tmp_path / "tiny")
    result = learn(*words)
    assert result.exit_code == 0, result.output
    assert "it imports regard, which the sandbox hides" in result.output


def test_a_folder_that_is_none_is_refused_by_its_flag(certified, tmp_path):
    result = learn(
        "status", "--verify", tmp_path / "ana.json", "--answers", tmp_path / "no", "--course", tmp_path / "tiny"
    )
    assert isinstance(result.exception, ValueError)
    assert "no is no folder; give the one with the learner's files" in str(result.exception)
