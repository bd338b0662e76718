"""Files that commands write, checked before a model runs."""

import os

import pytest

from regard.commands.shared.files import FIGURES, PAGES, check_output, check_save, read_contents


def test_several_heads_can_be_exact():
    assert read_contents(None, "4.3, 0.2").exact == [(4, 3), (0, 2)]
    assert read_contents("all", None) == ("all", ())


def test_a_directory_without_permission_is_refused_first(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ValueError, match=r"^-o .*page\.html: the directory .* is not writable; choose another$"):
        check_output(str(tmp_path / "page.html"), PAGES, "a page is FILE.html")
    with pytest.raises(ValueError, match=r"^--save .*: the directory .* is not writable; choose another$"):
        check_save(str(tmp_path / "seen.safetensors"))


def test_figures_say_what_they_need(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.commands.shared.files.find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r'figures need matplotlib, which is missing; pip install ("\.\[plot\]"|matplotlib)$'
    ):
        check_output(str(tmp_path / "head.svg"), FIGURES, "a figure is .svg, .png or .pdf")


def test_another_kind_is_refused_with_the_usual_one():
    with pytest.raises(ValueError, match=r"^-o a/b c\.doc: a figure is \.svg; try -o 'b c\.svg'$"):
        check_output("a/b c.doc", FIGURES, "a figure is .svg")
