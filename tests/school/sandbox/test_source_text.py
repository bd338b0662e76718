import json

import pytest

from regard.school.sandbox.source_text import (
    cell_and_line,
    clean_cell,
    decode_text,
    is_python,
    notebook_cells,
    notebook_text,
    place_of_line,
    read_source,
    with_cells,
)

TEXT = "x = 'é'\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"])
def test_a_text_is_read_in_the_encodings_of_editors(encoding):
    assert decode_text(TEXT.encode(encoding), "a.py") == TEXT
    assert decode_text(TEXT.replace("\n", "\r\n").encode(encoding), "a.py") == TEXT


def test_the_coding_line_comes_before_a_guess():
    text = "# coding: koi8-r\nx = 'ж'\n"
    assert decode_text(text.encode("koi8-r"), "a.py") == text
    assert decode_text(b"# coding: nonsense\n", "a.py") == "# coding: nonsense\n"


def test_what_windows_writes_comes_before_latin_1():
    assert decode_text(b"# \x93x\x94 \x85\n", "a.py") == "# \u201cx\u201d \u2026\n"


def test_lines_end_where_python_ends_them():
    assert decode_text(b"a\rb\r\nc\x0cd\n", "a.py") == "a\nb\nc d\n"


@pytest.mark.parametrize("data", [b"\0\1\2", "x".encode("utf-16-le"), b"\xff\xfex"])
def test_what_is_no_text_is_refused(data):
    with pytest.raises(ValueError, match=r"a\.py is not text; save it as UTF-8"):
        decode_text(data, "a.py")


def test_python_files_and_notebooks_are_known_by_their_names(tmp_path):
    assert list(map(is_python, ["a.py", "A.PY", "b.ipynb", "c.txt", "py"])) == [True, True, True, False, False]
    (tmp_path / "plain").write_text("x = 1")
    assert read_source(tmp_path / "plain") == "x = 1"


@pytest.mark.parametrize(
    ("cell", "cleaned"),
    [
        ("%matplotlib inline\nx = 1", "pass  # %matplotlib inline\nx = 1"),
        ("if x:\n    !pip install a \\\n      b\nelse:\n    y", "if x:\n    pass  # !pip install a\n# b\nelse:\n    y"),
        ("files = !ls\nnn.Linear?", "pass  # files = !ls\npass  # nn.Linear?"),
        ("%%time\nx = 1", "pass  # %%time\nx = 1"),
        ("%%bash\nls | wc", "# %%bash\n# ls | wc"),
        ("x = (7\n     % 3)\ns = '''\n!not a shell line\n'''", None),
        ("def f(:\n", None),
    ],
)
def test_magics_and_shell_lines_are_taken_out_and_lines_stay(cell, cleaned):
    assert clean_cell(cell) == (cell if cleaned is None else cleaned)


def test_a_notebook_is_its_code_cells_with_their_numbers():
    saved = [("markdown", ["# Hi"]), ("code", ["x = 1\n", "y = 2"]), ("raw", ["no"]), ("code", "z = 3")]
    text = json.dumps({"cells": [{"cell_type": kind, "source": source} for kind, source in saved]})
    joined = notebook_text(text, "a.ipynb")
    assert joined == "# %% [cell 2]\nx = 1\ny = 2\n# %% [cell 4]\nz = 3\n"
    assert list(notebook_cells(joined)) == [(0, "# %% [cell 2]\nx = 1\ny = 2"), (3, "# %% [cell 4]\nz = 3\n")]
    assert [cell_and_line(joined, line) for line in (2, 3, 5)] == [(2, 1), (2, 2), (4, 1)]
    assert (
        with_cells("It fails in line 5, not in line 2.", joined) == "It fails in cell 4, line 1, not in cell 2, line 1."
    )


def test_a_file_has_lines_and_no_cells():
    assert (list(notebook_cells("a\nb")), place_of_line("a\nb", 2)) == ([(0, "a\nb")], "line 2")
    assert with_cells("in line 2", "a\nb") == "in line 2"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"cells": 3}', '{"cells": [{"cell_type": "code"}]}', "3", "[" * 9999]
)
def test_what_is_no_notebook_is_refused(text):
    with pytest.raises(ValueError, match=r"a\.ipynb is not a notebook that Jupyter wrote; save it again, or export it"):
        notebook_text(text, "a.ipynb")
