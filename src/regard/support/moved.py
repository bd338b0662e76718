"""Module names of the last release: for one release they still work, and a warning names the new one.

To be removed in 0.3.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "regard.exercises": "regard.school.exercises",
    "regard.grading": "regard.school.grading",
    "regard.sandbox": "regard.school.sandbox",
}


class MovedModules:
    """Finds a module by its old name: the very module that has the new name, so that no class exists twice.

    A finder and loader as importlib.abc describes them; importing that would take longer than all else here.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if _package(fullname) in MOVED else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        old = _package(spec.name)
        name = spec.name.replace(old, MOVED[old], 1)
        warnings.warn(f"{spec.name} is {name} now; the old name goes in 0.3", DeprecationWarning, stacklevel=2)
        module = import_module(name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: it is imported already. The import system has set the spec of the old name: undo that."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def _package(name: str) -> str:
    return ".".join(name.split(".")[:2])


_FINDER = MovedModules()
sys.meta_path.insert(0, _FINDER)  # before the finder that would load a second copy of a submodule from the same file
find_old_name = _FINDER.find_spec
