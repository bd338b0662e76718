"""`regard learn speak` as a person types it."""

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.commands.learning import speak
from regard.school.course.courses import OWN_COURSE, read_course
from regard.school.course.learner import start_folder
from regard.school.course.own_model import OwnRecipe


def quick(seconds):
    sizes = {"merges": 3, "learned_on": 2000, "width": 8, "context": 16, "batch": 4, "lists": 2}
    return OwnRecipe(**sizes, steps=20, every=10, count=9, seconds=seconds)


@pytest.fixture
def learner(tmp_path, monkeypatch):
    """Everything but the last exercise is done, and it is written."""
    folder = start_folder(tmp_path / "answers", read_course(OWN_COURSE))[0]
    for lesson in folder.course.lessons:
        folder.file_of(lesson).write_text(lesson.text("solution.py"))
    monkeypatch.chdir(folder.path)
    monkeypatch.setattr(speak, "OwnRecipe", quick)
    return folder


def spoken(*arguments):
    result = CliRunner().invoke(app, ["learn", "speak", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_model_is_trained_and_the_page_is_written(learner):
    result = spoken()
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    assert "20 steps in" in text
    assert "No head learned to copy yet" in text
    assert "The page to keep, and to show: my-gpt.html" in text
    page = (learner.path / "my-gpt.html").read_text()
    assert "tokens of Alice&#x27;s Adventures in Wonderland" in page
    assert learner.progress.record("your_gpt").is_done


def test_a_wrong_layer_inside_is_named_before_anything_is_trained(learner, monkeypatch):
    monkeypatch.setattr(speak, "train_own_model", None)  # it is not called
    path = learner.file_of(learner.course.lesson("whole_layer"))
    path.write_text(path.read_text().replace("self.head_dim**0.5", "self.d_out**0.5"))
    result = spoken()
    assert result.exit_code == 1
    text = " ".join(result.output.split())
    assert "✗ 16_whole_layer.py: scale by √d_model" in text
    assert "53_your_gpt.py imports it. Mend it first: regard learn watch whole_layer" in text
    assert "Nothing was trained: every file of your model must be right first." in text
    assert not (learner.path / "my-gpt.html").exists()


def test_another_book_and_another_page(learner, tmp_path):
    (tmp_path / "book.txt").write_text("A rose is a rose is a rose. " * 1000)
    result = spoken("--book", tmp_path / "book.txt", "-o", tmp_path / "rose.html")
    assert result.exit_code == 0
    assert "tokens of book.txt" in (tmp_path / "rose.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--minutes", 0], "--minutes is 0; it is more than 0, and at most 60"),
        (["--book", "no.txt"], "no.txt is no file; --book is a text"),
        (["--book", "progress.txt"], "has less than 20,000 characters; --book needs more"),
        (["-o", "page.pdf"], "-o page.pdf: the page is HTML; try -o page.html"),
    ],
)
def test_options_that_make_no_sense_are_refused(learner, arguments, says):
    with pytest.raises(ValueError, match=says):
        spoken(*arguments)
