"""An exercise: the teacher's file exercise.py, loaded."""

from __future__ import annotations

import linecache
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from regard.school.exercises.parts import Function, Judged, Layer, Part, Question


@dataclass(frozen=True)
class Exercise:
    """What is asked for. `name` is that of the folder, `title` the first line of the docstring."""

    name: str
    title: str
    parts: tuple[Part, ...]
    passes_unsolved: bool = False
    path: Path | None = None  # of exercise.py

    @property
    def part_names(self) -> list[str]:
        """The names that the learner's file defines."""
        return [part.name for part in self.parts]


def load_exercise(path: Path | str) -> Exercise:
    """The exercise of a file, or of a folder with an exercise.py; ValueError says what is wrong with it."""
    path = Path(path)
    path = path / "exercise.py" if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"{path} does not exist; an exercise is a file exercise.py with parts = [...]")
    module = _run(path)
    title = (module.__doc__ or "").strip().split("\n")[0]
    if not title:
        raise ValueError(f"{path} has no docstring; its first line is the exercise's title")
    parts = getattr(module, "parts", None)
    if not isinstance(parts, (list, tuple)) or not parts:
        raise ValueError(f"{path} has no parts; write parts = [Function(...)], or Layer, Question, Judged")
    for part in parts:
        if not isinstance(part, (Function, Layer, Question, Judged)):
            raise ValueError(f"{path}: {part!r} is no part; parts are Function, Layer, Question and Judged")
        if not part.name.isidentifier():
            raise ValueError(f"{path}: {part.name!r} is no name of Python; a part has the name of what is written")
    unsolved = bool(getattr(module, "passes_unsolved", False))
    return Exercise(path.resolve().parent.name, title, tuple(parts), unsolved, path.resolve())


def _run(path: Path) -> ModuleType:
    """Run the teacher's file as a module; it may import files beside it."""
    module = ModuleType(f"_exercise_{path.resolve().parent.name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look there
    folder = str(path.resolve().parent)
    linecache.checkcache(str(path))
    sys.path.insert(0, folder)
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(module))
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg} (SyntaxError)") from error
    except Exception as error:
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
        where = f", line {lines[-1]}" if lines else ""
        raise ValueError(f"{path}{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    return module
