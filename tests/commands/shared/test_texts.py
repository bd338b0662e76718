"""The text of a command: a sentence, a file, or standard input."""

import io
import os
import sys

import pytest

from regard.commands.shared.texts import REPEATED, model_titles, read_text, text_titles


def test_a_sentence_a_file_and_standard_input_are_texts(tmp_path, monkeypatch):
    (tmp_path / "note.txt").write_text("from a file", encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe"))
    assert read_text("hello") == "hello"
    assert read_text(str(tmp_path / "note.txt")) == "from a file"
    assert read_text("-") == "from a pipe"


def test_a_model_given_as_the_text_is_told_its_flag(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"^tiny is a model, not a text; give it with --model tiny$"):
        read_text("tiny")
    with pytest.raises(ValueError, match=rf"^{tmp_path} is a model, not a text; give it with --model {tmp_path}$"):
        read_text(str(tmp_path))


def test_without_a_text_one_that_repeats_itself_is_read():
    first, second = read_text(None).split("\nand ")
    assert read_text(None) == REPEATED
    assert second.rstrip(".\n") == first.rstrip(",")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  ", r"the text '  ' is empty; give it at least a word"),
        ("today.txt", r"there is no file today\.txt; give a file, a sentence in quotes, or - for standard input"),
        ("notes/today", r"there is no file notes/today"),
        (".", r"^\. is a directory; name a file in it"),
    ],
)
def test_what_is_no_text_says_why(text, message):
    with pytest.raises(ValueError, match=message):
        read_text(text)


def test_a_file_that_no_model_can_read_is_not_read(tmp_path):
    (tmp_path / "sparse.txt").touch()
    os.truncate(tmp_path / "sparse.txt", 10 << 30)
    with pytest.raises(
        ValueError, match=r"sparse\.txt has 10,737,418,240 bytes, and a text here has at most 67,108,864"
    ):
        read_text(str(tmp_path / "sparse.txt"))


def test_titles_tell_two_texts_and_two_models_apart(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text.txt").write_text("x")
    files = [str(tmp_path / name / "text.txt") for name in ("a", "b")]
    assert text_titles([files[0], None], ["x", "y z"]) == ["text.txt", "“y z”"]
    assert text_titles(files, ["x", "y"]) == ["“x”", "“y”"]
    assert text_titles([None, None], ["q" * 50, "w " * 50]) == [f"“{'q' * 31}…”", f"“{'w ' * 15}w…”"]
    assert model_titles(["tiny", "runs/a/model/"]) == ["tiny", "model"]
    assert model_titles(["runs/a/model", "runs/b/model"]) == ["a/model", "b/model"]


def test_titles_escape_control_characters():
    assert text_titles([None], ["\x1b[31mred\n and \u202ered"]) == [r"“\x1b[31mred and \u202ered”"]
