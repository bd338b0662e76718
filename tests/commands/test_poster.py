"""`regard poster`: a sheet as PDF, SVG or PNG."""

import pytest

from regard.commands.poster import poster


def test_a_poster_is_written_under_the_name_of_the_model(tmp_path, capsys):
    path = tmp_path / "poster.svg"
    poster("The cat sat on the mat", output=str(path), paper="a4")
    assert capsys.readouterr().out == f"\n  Wrote {path}\n"
    text = path.read_text(encoding="utf-8")
    assert ">tiny</text>" in text
    assert "The cat sat on the mat" in text


def test_missing_matplotlib_is_said_first(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.commands.shared.files.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"poster\.pdf: figures need matplotlib, which is missing; pip install"):
        poster("The cat", output=str(tmp_path / "poster.pdf"), paper="no such paper", model="no such model")


def test_a_sheet_or_a_file_that_is_unknown_is_refused_before_the_model_runs(tmp_path):
    with pytest.raises(ValueError, match="--paper a0 is not known; it is one of a4, a3, a2, a1"):
        poster("The cat", output=str(tmp_path / "poster.pdf"), paper="a0", model="no such model")
    with pytest.raises(ValueError, match=r"a poster is \.pdf, \.svg or \.png"):
        poster("The cat", output=str(tmp_path / "poster.html"), model="no such model")
