"""A learner's file, loaded: what it defines, and which of its statements failed."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from regard.school.check.learner_code import driver
from regard.school.check.learner_code.protocol import SkippedFacts
from regard.school.check.learner_code.selection import AnySubject, what_to_check
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.sandbox.modules import SKIPPED, load_module, neighbours
from regard.school.sandbox.source_text import read_source
from regard.school.sandbox.stand_ins import Unavailable


@dataclass
class LearnerFile(Generic[AnySubject]):
    """What a file defines, whether it was loaded here or in the sandbox."""

    file: str
    source: str
    own: list[AnySubject] = field(default_factory=list)  # classes, then functions
    skipped: list[SkippedFacts] = field(default_factory=list)  # statements that failed
    names: Mapping[str, Any] = field(default_factory=dict)  # all of the module, where it was loaded here

    def subjects(self, name: str = "") -> list[AnySubject]:
        """The class or function of this name; without one, what looks like attention and is judged by itself."""
        if not name:
            return what_to_check(self.own)
        named: list[Any] = [one for one in self.own if one.described["name"] == name]
        target = self.names.get(name)
        if not named and (inspect.isfunction(target) or isinstance(target, type)):  # from a file beside it
            named = [LocalSubject(target)]
        if not named:
            listed = ", ".join(one.described["name"] for one in self.own) or "nothing to check"
            raise ValueError(f"{self.file} has no {name}; it has {listed}")
        return named

    @property
    def failures(self) -> list[SkippedFacts]:
        """The statements that failed by themselves, not because an earlier one did."""
        return [one for one in self.skipped if one["type"] != Unavailable.__name__]


def split_name(spec: str) -> tuple[Path, str]:
    """A file and the name in it, from FILE[:NAME].

    >>> split_name("homework.py:Attention")[1]
    'Attention'
    """
    file, _, name = spec.rpartition(":")
    if file and name.isidentifier() and not Path(spec).exists():
        return Path(file), name
    return Path(spec), ""


class _Nowhere(io.StringIO):
    """What a file prints while it is imported is not shown."""

    def write(self, text: str) -> int:
        """Write nothing."""
        return len(text)


def load_file(path: Path) -> LearnerFile[LocalSubject]:
    """Run a file or a notebook as a module, statement by statement. What it prints is not shown."""
    source, file = read_source(path), str(path)
    os.environ.setdefault("MPLBACKEND", "Agg")  # figures open no windows
    with neighbours(file), contextlib.redirect_stdout(_Nowhere()), contextlib.redirect_stderr(_Nowhere()):
        module: Any = load_module(f"_checked_{path.stem}_{abs(hash(path.resolve()))}", source, file)
    own = [LocalSubject(one, source, file, name) for name, one in driver.own_values(module)]
    return LearnerFile(file, source, own, list(getattr(module, SKIPPED)), vars(module))
