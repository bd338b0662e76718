"""docs/homework.md and docs/card.md: every row leads to something that exists, and every shape on the card is true."""

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from chromium import needs_chromium
from typer.testing import CliRunner

from benchmarks.__main__ import BENCHMARKS
from regard.cli import app
from regard.commands.notebook import FOLDER

DOCS = Path(__file__).parents[1] / "docs"
LESSONS = Path(__file__).parents[1] / "src" / "regard" / "school" / "lessons"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (DOCS / "homework.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| topic", "| ---"))
]


def headings(number):
    """The headings of a notebook, without numbers."""
    file = next(FOLDER.glob(f"{number}-*.ipynb"))
    cells = [c for c in json.loads(file.read_text())["cells"] if c["cell_type"] == "markdown"]
    lines = [line for cell in cells for line in "".join(cell["source"]).splitlines() if line.startswith("## ")]
    return [re.sub(r"^## (\d+\. )?", "", line) for line in lines]


def test_every_row_has_a_file_a_command_an_exercise_and_a_notebook():
    assert len(ROWS) >= 35
    assert all(len(row) == 5 and all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_leads_to_exercises_and_a_heading_of_a_notebook_that_exist(row):
    for name in re.findall(r"`(\w+)`", row[3]):
        assert (LESSONS / name / "start.py").is_file(), name
    number, _, heading = row[4].partition(": ")
    assert any(one.startswith(heading) for one in headings(number)), row[4]


@pytest.mark.parametrize("command", sorted({row[2].strip("`") for row in ROWS}))
def test_every_command_exists(command):
    program, name, *more = shlex.split(command)  # all of them are run by .ci/base
    if program == "python":
        assert (name, more[0], more[1] in BENCHMARKS) == ("-m", "benchmarks", True)
    else:
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


def test_every_exercise_of_the_course_is_named():
    named = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[3])}
    assert {folder.parent.name for folder in LESSONS.glob("*/start.py")} == named


def test_every_shape_on_the_card_is_that_of_its_line():
    code = re.search(r"```python\n(.*?)```", (DOCS / "card.md").read_text(), re.DOTALL)[1]
    names, checked = {}, 0
    for line in filter(None, code.splitlines()):
        exec(line, names)
        if shape := re.search(r"# (\(\d[\d, ]+\))", line):
            target = ast.parse(line).body[0].targets[0]
            first = target.elts[0].id if isinstance(target, ast.Tuple) else target.id
            value = names[first]
            assert isinstance(value, torch.Tensor)
            assert tuple(value.shape) == ast.literal_eval(shape[1]), line
            checked += 1
    assert checked == 12


def pages(pdf):
    return len(re.findall(rb"/Type /Page\b", pdf.read_bytes()))


def test_the_card_to_print_is_one_page():
    assert pages(DOCS / "card" / "card.pdf") == 1


@pytest.mark.slow
@needs_chromium
def test_the_card_of_today_still_fits_one_page(tmp_path):
    script, card = str(DOCS / "card" / "print.py"), str(tmp_path / "card.pdf")
    command = f"import runpy; runpy.run_path({script!r})['write_pdf'](Path({card!r}))"
    subprocess.run([sys.executable, "-c", f"from pathlib import Path; {command}"], check=True, timeout=120)
    assert pages(tmp_path / "card.pdf") == 1
