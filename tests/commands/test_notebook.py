import json

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.commands.notebook import FOLDER, notebook, title

FILES = sorted(FOLDER.glob("*.ipynb"))


def run(*arguments):
    return CliRunner().invoke(app, ["notebook", *arguments])


def test_without_a_name_all_five_are_listed_with_their_titles():
    lines = [line for line in run().output.splitlines() if "-" in line]
    assert [line.split()[0] for line in lines] == [file.stem for file in FILES]
    assert len(lines) == 5
    assert all(title(file) in line for file, line in zip(FILES, lines, strict=True))
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("name", ["3", "heads", "3-heads", "3-heads.ipynb"])
def test_a_number_or_a_name_copies_a_notebook_out(name, tmp_path):
    result = run(name, str(tmp_path))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "3-heads.ipynb").read_bytes() == (FOLDER / "3-heads.ipynb").read_bytes()
    assert "jupyter lab" in result.output


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (("jupyterlab", "matplotlib"), "  JupyterLab and matplotlib: not installed here; pip install"),
        (("matplotlib",), "  matplotlib: not installed here; pip install"),
    ],
)
def test_what_a_notebook_needs_and_is_missing_is_named(missing, said, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.commands.notebook.find_spec", lambda name: None if name in missing else name)
    assert said in run("1", str(tmp_path)).output


def test_a_notebook_that_somebody_has_worked_in_is_not_overwritten(tmp_path):
    (tmp_path / "1-ladder.ipynb").write_text("my work")
    with pytest.raises(ValueError, match="exists already, and may hold your work"):
        notebook("1", tmp_path)
    assert (tmp_path / "1-ladder.ipynb").read_text() == "my work"


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(ValueError, match="there is no notebook 6; there are 1-ladder, 2-easy-and-production"):
        notebook("6")


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        notebook("1", tmp_path / "missing")


def test_every_notebook_is_valid_and_starts_with_a_heading_and_what_it_needs():
    for file in FILES:
        first = "".join(json.loads(file.read_text())["cells"][0]["source"])
        assert first.startswith(f"# {file.stem[0]} · ")
        assert "pip install" in first
        assert "badge" not in first
