"""Run notebooks of the package and store what they print, with a text in place of each picture for who cannot see it.

    python tests/run_notebooks.py [NUMBER …]

The text of a picture is in the metadata of its cell, `alt`, and is copied to the picture each time it is drawn.
"""

import sys
import tempfile
from pathlib import Path

import nbformat

from test_notebooks import FILES, executed


def run(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        book = executed(nbformat.read(file, as_version=4), Path(folder))
    for cell in book.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                output.metadata["image/png"] = {"alt": cell.metadata["alt"]}
        cell.metadata.pop("execution", None)
    nbformat.write(book, file)


if __name__ == "__main__":
    chosen = sys.argv[1:]
    for file in FILES:
        if not chosen or file.name[0] in chosen:
            print(file.name)
            run(file)
