"""Source: a learner's file, loaded; errors in it are told with the line."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import linecache
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from torch import nn

from regard.school.check.learner_code.subject import LocalSubject, Subject, is_function
from regard.school.check.learner_code.text_hints import is_known

AnySubject = TypeVar("AnySubject", bound=Subject)


@dataclass
class Loaded:
    """What a file defines, and what went wrong while it ran."""

    path: Path
    module: ModuleType
    source: str
    problem: str = ""
    line: int = 0

    def subjects(self, name: str = "") -> list[LocalSubject]:
        """The class or function of this name; without one, the layers in the file that look like attention."""
        if not name:
            return what_to_check(self._own())
        if (target := vars(self.module).get(name)) is None:
            listed = ", ".join(one.described["name"] for one in self._own()) or "nothing to check"
            raise ValueError(f"{self.path} has no {name}; it has {listed}")
        return [LocalSubject(target, self.source, str(self.path))]

    def wholes(self) -> list[LocalSubject]:
        """The layers in the file that may hold attention: blocks and models."""
        layers = [one for one in self._own() if not is_function(one)]
        return [one for one in layers if not is_named_attention(one.described["name"])]

    def _own(self) -> list[LocalSubject]:
        """The layers that the file defines, then its functions."""
        own = [v for v in vars(self.module).values() if getattr(v, "__module__", None) == self.module.__name__]
        layers = [v for v in own if isinstance(v, type) and issubclass(v, nn.Module)]
        functions = [v for v in own if inspect.isfunction(v)]
        return [LocalSubject(one, self.source, str(self.path)) for one in (*layers, *functions)]


def what_to_check(subjects: Sequence[AnySubject]) -> list[AnySubject]:
    """What to check of a file: attention layers; else all layers; else functions whose names are known."""
    layers = [one for one in subjects if not is_function(one)]
    named = [one for one in layers if is_named_attention(one.described["name"])]
    facts = ((one, one.described["name"], [p["name"] for p in one.described["call"]]) for one in subjects)
    return named or layers or [one for one, name, arguments in facts if is_known(name, arguments)]


def is_named_attention(name: str) -> bool:
    """Does the name of a class say that it is attention?

    >>> is_named_attention("MultiHeadAttention"), is_named_attention("FeedForward")
    (True, False)
    """
    return any(word in name.lower() for word in ("attention", "attn", "head", "mha"))


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


def read_source(path: Path) -> str:
    """The text of a Python file."""
    if path.is_dir() or path.suffix not in (".py", ""):
        raise ValueError(f"{path} is not a Python file; give FILE.py or FILE.py:CLASS")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None


def load_file(path: Path) -> Loaded:
    """Run a file as a module. What it prints is not shown; what it raises is told with its line."""
    source = read_source(path)
    name = f"_checked_{path.stem}_{abs(hash(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file; give FILE.py or FILE.py:CLASS")
    module = importlib.util.module_from_spec(spec)
    loaded = Loaded(path, module, source)
    linecache.checkcache(str(path))
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with contextlib.redirect_stdout(_Nowhere()):
            exec(compile(source, str(path), "exec"), vars(module))
    except KeyboardInterrupt:
        raise
    except SyntaxError as error:
        loaded.problem, loaded.line = f"{error.msg} (SyntaxError)", error.lineno or 0
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        loaded.problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".rstrip(": ")
        loaded.line = (frames[-1].lineno or 0) if frames else 0
    finally:
        sys.path.remove(str(path.resolve().parent))
    return loaded
