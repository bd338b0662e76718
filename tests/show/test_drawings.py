"""Registering the drawing functions."""

import re
import subprocess
import sys
from pathlib import Path

import regard


def test_a_table_is_drawn_without_torch_and_the_drawings_are_registered_at_once():
    code = (
        "import sys; from regard.show.terminal.table import text_table; print('torch' in sys.modules); "
        "from regard.support.drawing import as_text; before = len(as_text.registry); "
        "import regard.show.drawings; print(before, len(as_text.registry) > 5)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "1 True"]


def test_show_runs_no_model_and_knows_nothing_of_the_school():
    runs = (
        "attention",
        "ladder",
        "adoption",
        "gpt",
        "mistakes",
        "school",
        "commands",
        "heads.watch",
        "heads.intercept",
    )
    folder = Path(regard.__file__).parent / "show"
    imports = [
        (path.name, module)
        for path in folder.rglob("*.py")
        for module in re.findall(r"^\s*(?:from|import) regard\.([\w.]+)", path.read_text(), re.MULTILINE)
    ]
    assert len(imports) > 50
    assert [(name, module) for name, module in imports if module.startswith(runs)] == []
