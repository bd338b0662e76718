"""Registering the drawing functions."""

import subprocess
import sys


def test_a_table_is_drawn_without_torch_and_the_drawings_are_registered_at_once():
    code = (
        "import sys; from regard.show.terminal.table import text_table; print('torch' in sys.modules); "
        "from regard.support.drawing import as_text; before = len(as_text.registry); "
        "import regard.show.drawings; print(before, len(as_text.registry) > 5)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "1 True"]
