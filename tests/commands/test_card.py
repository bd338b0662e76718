"""`regard card`: the reference card in the terminal and as a file."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app

ROOT = Path(__file__).parents[2]


def test_the_card_has_its_shapes_and_is_not_wider_than_the_terminal():
    result = CliRunner().invoke(app, ["card"])
    assert result.exit_code == 0
    assert "# (4, 12, 100, 100)  attend: every query, every key" in result.output
    assert "GPT-2 XL" in result.output
    assert max(map(len, result.output.splitlines())) <= 80


@pytest.mark.parametrize("name", ["card.pdf", "drawing.svg", "card.md"])
def test_the_card_is_saved_and_nothing_is_written_over(name, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.commands.shared.files.find_spec", lambda name: None)  # it needs no matplotlib
    file = tmp_path / name
    assert CliRunner().invoke(app, ["card", "-o", str(file)]).exit_code == 0
    stored = {".pdf": "card/card.pdf", ".svg": "card/flow.svg", ".md": "card.md"}[file.suffix]
    assert file.read_bytes() == (ROOT / "docs" / stored).read_bytes()
    again = CliRunner().invoke(app, ["card", "-o", str(file)])
    assert str(again.exception) == f"{file} exists already; remove it or choose another name"


def test_the_card_is_no_other_kind_of_file(tmp_path):
    result = CliRunner().invoke(app, ["card", "-o", str(tmp_path / "card.docx")])
    assert str(result.exception).endswith("the card is a .pdf, .svg or .md; try -o card.pdf")
