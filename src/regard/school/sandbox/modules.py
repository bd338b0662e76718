"""A learner's file as a module, together with the files beside it, which it may import by their names or relatively."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from regard.school.sandbox.source_text import read_source
from regard.school.sandbox.statements import SPARE_SECONDS, run_statements

SKIPPED = "__skipped__"  # the statements that were skipped, in the module
_PACKAGE = "files_beside_it"  # what relative imports are relative to


def load_module(name: str, source: str, file: str, spare_seconds: float = SPARE_SECONDS) -> ModuleType:
    """Run a file's text as a module of this name. `neighbours` must be active if it may import the files beside it."""
    module = ModuleType(name)
    module.__file__ = file
    if any(isinstance(finder, Neighbours) and finder.file == file for finder in sys.meta_path):
        module.__package__ = _enter_package(source, file)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # as it was read, for inspect
    sys.modules[name] = module
    vars(module)[SKIPPED] = run_statements(source, file, module, spare_seconds)
    return module


@contextmanager
def neighbours(file: str) -> Iterator[None]:
    """While it is active, the files beside a file can be imported, and those beside its folder."""
    path, modules = list(sys.path), set(sys.modules)
    finder = add_neighbours(file, os.path.dirname(os.path.dirname(os.path.abspath(file))))
    try:
        yield
    finally:
        sys.path[:] = path
        sys.meta_path.remove(finder)
        for name in [name for name in set(sys.modules) - modules if finder.owns(sys.modules[name])]:
            del sys.modules[name]  # another file may have neighbours of the same names


def add_neighbours(file: str, root: str) -> Neighbours:
    """Let the files beside a file be imported, and those of another folder."""
    finder = Neighbours(file, root)
    sys.path[:] = [finder.folder, *sys.path, root]
    sys.meta_path.insert(0, finder)
    return finder


class Neighbours(MetaPathFinder):
    """Finds the files beside a file, and those of packages there; they run statement by statement, too."""

    def __init__(self, file: str, root: str) -> None:
        self.file, self.folder, self.root = file, os.path.dirname(os.path.abspath(file)), root

    def owns(self, module: ModuleType) -> bool:
        """Is a module, or a package, in one of the two folders, and not the file itself?"""
        places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
        name = getattr(module, "__name__", "")
        return self.file not in places and any(
            self._is_beside(name, one + end) for one in places for end in ("", os.sep)
        )

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a file under one of the two folders; None for all others."""
        spec = PathFinder.find_spec(name, [self.folder] if path is None else path)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        if not self._is_beside(name, spec.loader.path):
            return None
        spec.loader = _Loader(name, spec.loader.path)
        return spec

    def _is_beside(self, name: str, file: str) -> bool:
        """Is a module in one of the two folders, and not in an environment there? .venv is often beside a homework."""
        top = "" if name.startswith(f"{_PACKAGE}.") else name.partition(".")[0]
        places = [os.path.join(folder, top) for folder in (self.folder, self.root)]
        return file.startswith(tuple(f"{place.rstrip(os.sep)}{os.sep}" for place in places)) or file in (
            f"{place}.py" for place in places
        )


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        run_statements(read_source(Path(self.path)), self.path, module, spare_seconds=0.0, imported=True)


def _enter_package(source: str, file: str) -> str:
    """The package that the relative imports of a file are relative to; "" where it has none."""
    levels = [0]
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        levels += [one.level for one in ast.walk(ast.parse(source)) if isinstance(one, ast.ImportFrom)]
    if not max(levels):
        return ""
    *above, stem = Path(os.path.abspath(file)).parts[-max(levels) :]
    root = Path(os.path.abspath(file)).parents[max(levels) - 1]
    package = ModuleType(_PACKAGE)
    package.__path__, package.__package__ = [str(root)], _PACKAGE
    sys.modules[_PACKAGE] = package
    if (start := root / "__init__.py").is_file():
        run_statements(read_source(start), str(start), package, spare_seconds=0.0, imported=True)
    sys.modules.pop(".".join([_PACKAGE, *above, Path(stem).stem]), None)  # what __init__.py imported is loaded again
    return ".".join([_PACKAGE, *above])
