"""The extras of the package, and how to install one from where a person is."""

import shlex
from pathlib import Path

EXTRAS = {
    "plot": ("matplotlib",),
    "notebook": ("anywidget", "jupyterlab", "matplotlib"),
    "serve": ("starlette", "uvicorn"),
}


def how_to_install(extra: str) -> str:
    """The command that installs an extra: by its name in a clone of the repository, elsewhere by its packages.

    >>> how_to_install("plot").startswith("pip install ")
    True
    """
    project = Path("pyproject.toml")
    try:
        is_clone = 'name = "regard"' in project.read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        is_clone = False
    return f'pip install ".[{extra}]"' if is_clone else f"pip install {shlex.join(EXTRAS[extra])}"
