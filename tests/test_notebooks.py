"""The notebooks run from top to bottom, and hold the numbers that they print."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from regard.commands.notebook import FOLDER

MISSING = [name for name in ("nbclient", "ipykernel") if importlib.util.find_spec(name) is None]
FILES = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 300_000  # bytes of a notebook with its pictures

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING) and not os.environ.get("REGARD_NEEDS_JUPYTERLAB"), reason=f"needs {' and '.join(MISSING)}"
    ),
]


def read(file):
    import nbformat

    return nbformat.read(file, as_version=4)


def executed(book, folder):
    """The notebook as its kernel leaves it."""
    import nbformat

    path = folder / "book.ipynb"
    nbformat.write(book, path)
    source = Path(__file__).parents[1] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}  # beside other tests
    environment.pop("REGARD_CHECK_SHAPES", None)
    command = [
        sys.executable,
        "-c",
        "from nbclient.cli import main; main()",
        str(path),
        "--inplace",
        "--timeout",
        "300",
    ]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return read(path)


def printed(cell):
    """What a cell writes as text; pictures and pages have a text that says nothing."""
    parts = [one.get("text") or one.get("data", {}).get("text/plain", "") for one in cell.get("outputs", [])]
    return re.sub(r"<Figure.*?>", "", "".join(parts)).strip()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_notebook_runs_and_prints_what_it_holds(file, tmp_path):
    stored = read(file)
    fresh = executed(stored, tmp_path)
    for before, after in zip(stored.cells, fresh.cells, strict=True):
        if "varies" not in before.metadata.get("tags", ()):
            assert printed(after) == printed(before), before.source


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_notebook_is_small_and_was_run(file):
    assert file.stat().st_size < LARGEST
    cells = [cell for cell in read(file).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any("widget" in name for cell in cells for one in cell.outputs for name in one.get("data", ()))
    pictures = [one for cell in cells for one in cell.outputs if "image/png" in one.get("data", ())]
    assert all(one.metadata["image/png"]["alt"] for one in pictures), "tests/run_notebooks.py writes it from the cell"


def test_every_answer_of_the_guided_exercise_is_right(tmp_path):
    book = read(FOLDER / "4-guided-exercise.ipynb")
    exercises = 0
    for cell, after in zip(book.cells, book.cells[1:], strict=False):
        if "exercise" in cell.metadata.get("tags", ()):
            answer = re.search(r"```python\n(.*?)```", after.source, re.DOTALL)[1]
            cell.source = re.sub(r"mine = None +# your line here\n", lambda _, text=answer: text, cell.source)
            exercises += 1
        if "class" in cell.metadata.get("tags", ()):
            answer = re.search(r"```python\n(.*?)```", after.source, re.DOTALL)[1]
            cell.source = f"{answer}\n\nregard.check(MultiHeadAttention)"
    assert exercises == 11
    fresh = executed(book, tmp_path)
    ends = [printed(cell).splitlines()[-1] for cell in fresh.cells if "exercise" in cell.metadata.get("tags", ())]
    assert ends == ["yours: right"] * exercises
    own = next(cell for cell in fresh.cells if "class" in cell.metadata.get("tags", ()))
    assert printed(own).lstrip().startswith("✓ MultiHeadAttention is right: causal multi-head attention")
