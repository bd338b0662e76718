"""`regard play`: a head that reads a text, as an animation."""

import sys

import pytest

from regard.commands.play import play


def test_an_animation_of_the_chosen_head_is_written(tmp_path, capsys):
    path = tmp_path / "head.svg"
    play("The cat sat on the mat", output=str(path), head="2.1")
    assert capsys.readouterr().out == f"\n  Wrote {path}\n"
    assert "tiny  head 2.1, " in path.read_text(encoding="utf-8")


def test_an_animation_needs_no_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    play("The cat", output=str(tmp_path / "head.svg"))
    assert (tmp_path / "head.svg").is_file()


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"an animation is \.svg"):
        play("The cat", output=str(tmp_path / "head.gif"), model="no such model")
