"""A learner's file as Python text: any encoding and line ends, and notebooks as they are saved.

The cells of a notebook are joined, each after a line that has its number: so a line of the text is a line of a cell.
"""

from __future__ import annotations

import ast
import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SUFFIXES = (".py", ".pyw", ".ipynb")
_BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BREAKS = dict.fromkeys(
    map(ord, "\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " "
)  # of lines for str.splitlines, not for Python
_CELL = re.compile(r"^# %% \[cell (\d+)\]$")
_MAGIC = re.compile(r"\s*([%!?]|.*\?\s*$|[\w, .\[\]]+=\s*[%!])")  # also obj? and files = !ls
_PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun")  # what follows is Python; after others it is not


def is_python(name: str) -> bool:
    """Is a file of this name a Python file or a notebook?"""
    return name.lower().endswith(SUFFIXES)


def read_source(path: Path) -> str:
    """The text of a Python file or a notebook; ValueError for what is neither."""
    if path.is_dir() or not (is_python(path.name) or not path.suffix):
        raise ValueError(f"{path} is not a Python file or a notebook; give FILE.py or FILE.ipynb, or FILE.py:CLASS")
    text = decode_text(path.read_bytes(), path.name)
    return notebook_text(text, path.name) if path.suffix.lower() == ".ipynb" else text


def decode_text(data: bytes, name: str) -> str:
    r"""The text of a file: by its mark or its coding line; else UTF-8, else as Windows and latin-1 write it.

    >>> decode_text("x = 'é'\r\n".encode("latin-1"), "homework.py")
    "x = 'é'\n"
    """
    bom = next((one for one in _BOMS if data.startswith(one)), b"")
    said = [found[1].decode() for line in data.split(b"\n")[:2] if (found := _COOKIE.match(line))]
    text = None
    for encoding in [_BOMS[bom]] if bom else [*said[:1], "utf-8", "cp1252", "latin-1"]:
        try:
            text = data[len(bom) :].decode(encoding)
            break
        except (UnicodeDecodeError, LookupError):
            continue
    if text is None or "\0" in text:
        raise ValueError(f"{name} is not text; save it as UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_BREAKS)


def notebook_text(text: str, name: str) -> str:
    """The code cells of a notebook as one text."""
    try:
        saved = json.loads(text)
        cells = saved["cells"] if "cells" in saved else [one for sheet in saved["worksheets"] for one in sheet["cells"]]
        parts = [
            f"# %% [cell {number}]\n{clean_cell(_joined(cell['source'] if 'source' in cell else cell['input']))}\n"
            for number, cell in enumerate(cells, 1)
            if cell["cell_type"] == "code"
        ]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"{name} is not a notebook that Jupyter wrote; save it again, or export it as .py") from None
    return "".join(parts)


def _joined(lines: Any) -> str:
    text = lines if isinstance(lines, str) else "".join(lines)
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_BREAKS)


def clean_cell(text: str) -> str:
    r"""A cell without its magics and shell lines; its lines keep their numbers.

    >>> clean_cell("%matplotlib inline\nx = 7 # ten\n!ls")
    'pass  # %matplotlib inline\nx = 7 # ten\npass  # !ls'
    """
    lines = text.split("\n")
    first = next((line.split()[0] for line in lines if line.strip()), "")
    if first.startswith("%%") and first not in _PYTHON_CELLS:
        return "\n".join(f"# {line}" for line in lines)
    for _ in lines:
        try:
            ast.parse("\n".join(lines))
            break
        except SyntaxError as error:
            number = min(error.lineno or 0, len(lines)) - 1
            if number < 0 or not _MAGIC.match(lines[number]):
                break
            _replace_magic(lines, number)
        except (ValueError, RecursionError, MemoryError):
            break
    return "\n".join(lines)


def _replace_magic(lines: list[str], number: int) -> None:
    """Put `pass` in place of a line; a shell line may go on in the next."""
    line = lines[number]
    indent, is_long = line[: len(line) - len(line.lstrip())], line.endswith("\\")
    lines[number] = f"{indent}pass  # {line.strip()}".rstrip("\\ ")
    while is_long and number + 1 < len(lines):
        number += 1
        is_long = lines[number].endswith("\\")
        lines[number] = f"# {lines[number].strip()}".rstrip("\\ ")


def notebook_cells(text: str) -> Iterator[tuple[int, str]]:
    """The cells of a text, each with the number of lines before it; one where it is no notebook."""
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if _CELL.match(line)] or [0]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield start, "\n".join(lines[start:end])


def cell_and_line(text: str, line: int) -> tuple[int, int]:
    r"""The number of the cell that a line of the text is in, and its line there; cell 0 where it is no notebook.

    >>> cell_and_line("# %% [cell 3]\nx = 1\ny = 2", 3), cell_and_line("x = 1", 1)
    ((3, 2), (0, 1))
    """
    lines = text.split("\n")[:line]
    for before, one in enumerate(reversed(lines)):
        if found := _CELL.match(one):
            return int(found[1]), before
    return 0, line


def with_cells(said: str, text: str) -> str:
    """A sentence about lines of a text, about lines of its cells where it is a notebook's."""
    if not _CELL.match(text.split("\n", 1)[0]):
        return said
    return re.sub(r"\bline (\d+)\b", lambda found: place_of_line(text, int(found[1])), said)


def place_of_line(text: str, line: int) -> str:
    """Where a line is, in words: line 7, or cell 3, line 2."""
    cell, line = cell_and_line(text, line)
    return f"cell {cell}, line {line}" if cell else f"line {line}"
