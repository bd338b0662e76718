"""Answers that import others of the learner's files, as the last ones do: where those are, and a folder with all."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # lists and hints do not wait for torch
    from regard.school.exercises.exercise import Exercise


def used_files(exercise: Exercise, path: Path) -> dict[str, Path | None]:
    """The learner's files that an answer imports, by exercise: beside it or, in a review, in the folder above."""
    return {name: _find(name, path.absolute().parent) for name in exercise.uses}


@contextmanager
def files_beside(exercise: Exercise, path: Path) -> Iterator[Path | None]:
    """A folder with copies of an answer and of what it imports; None where it imports nothing of the learner's.

    Other people's answers can read nothing else, and in a review the other files are elsewhere.
    """
    files = [one for one in used_files(exercise, path).values() if one is not None]
    if not exercise.uses or not path.is_file():
        yield None
        return
    with TemporaryDirectory(prefix="regard-") as place:
        folder = Path(place)
        folder.chmod(0o755)  # the sandbox has no privileges
        for one in [*files, path]:
            (folder / one.name).unlink(missing_ok=True)
            shutil.copyfile(one, folder / one.name)
        yield folder


def _find(name: str, near: Path) -> Path | None:
    for folder in (near, near.parent):
        for path in sorted(folder.glob(f"*_{name}.py")):
            if re.fullmatch(rf"\d+_{name}\.py", path.name) and path.is_file():
                return path
    return None
