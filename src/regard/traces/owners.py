"""Owners: which submodule a parameter or buffer belongs to, and what its parent calls it."""

from __future__ import annotations

import sys
from typing import NamedTuple

from torch import Tensor, nn


class Owned(NamedTuple):
    """A parameter or buffer: its submodule, that submodule's path, and the tensor's own name in it."""

    module: nn.Module
    path: str
    name: str

    @property
    def short_path(self) -> str:
        """The path from its last part that is not a number: `W_query` of `blocks.0.attention.W_query`."""
        parts = self.path.split(".")
        words = [i for i, part in enumerate(parts) if not part.isdigit()]
        return ".".join(parts[words[-1] :]) if words else self.path

    def runs(self, function: str) -> bool:
        """Is this torch function the one that the submodule stands for, as `linear` is for nn.Linear?"""
        return bool(self.path) and type(self.module).__name__.lower() == function.replace("_", "")


class Owners:
    """Finds the owner of a tensor among the modules given, and among those that are running."""

    def __init__(self, module: nn.Module | None = None) -> None:
        self._owned: dict[int, Owned] = {}
        self._read: dict[int, nn.Module] = {}  # kept alive, so that no id is used again
        if module is not None:
            self._add(module)

    def find(self, tensor: Tensor) -> Owned | None:
        """The tensor's owner; None where no module that is running holds it."""
        owned = self._owned.get(id(tensor))
        if owned is not None and owned.path:
            return owned
        # A block `with trace():` is given no module: look for it among the callers, the innermost first.
        frame = sys._getframe(1)
        while frame is not None and (owned is None or not owned.path):
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module) and "_modules" in vars(module) and id(module) not in self._read:
                self._add(module)
                owned = self._owned.get(id(tensor))
            frame = frame.f_back  # type: ignore[assignment]
        return owned

    def _add(self, module: nn.Module) -> None:
        self._read[id(module)] = module
        for path, child in module.named_modules():
            for name, tensor in (*child._parameters.items(), *child._buffers.items()):
                known = self._owned.get(id(tensor))
                if tensor is not None and (known is None or not known.path):
                    self._owned[id(tensor)] = Owned(child, path, name)
