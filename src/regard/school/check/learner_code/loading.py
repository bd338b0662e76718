"""Source: a learner's file, loaded; errors in it are told with the line."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import linecache
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from regard.school.check.learner_code.function_roles import is_known
from regard.school.check.learner_code.subject import LocalSubject

_ATTENTION = ("attention", "attn", "head", "mha")


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
        own = [v for v in vars(self.module).values() if getattr(v, "__module__", None) == self.module.__name__]
        classes = [v for v in own if isinstance(v, type) and issubclass(v, nn.Module)]
        functions = [v for v in own if callable(v) and not isinstance(v, type) and hasattr(v, "__code__")]
        if name:
            target = vars(self.module).get(name)
            if target is None:
                listed = ", ".join(v.__name__ for v in (*classes, *functions)) or "nothing to check"
                raise ValueError(f"{self.path} has no {name}; it has {listed}")
            return [self._subject(target)]
        return [self._subject(one) for one in what_to_check(classes, functions)]

    def wholes(self) -> list[LocalSubject]:
        """The layers in the file that may hold attention: blocks and models."""
        own = [v for v in vars(self.module).values() if getattr(v, "__module__", None) == self.module.__name__]
        classes = [v for v in own if isinstance(v, type) and issubclass(v, nn.Module)]
        return [self._subject(one) for one in classes if not is_named_attention(one.__name__)]

    def _subject(self, target: Any) -> LocalSubject:
        return LocalSubject(target, self.source, str(self.path))


def what_to_check(classes: list[Any], functions: list[Any]) -> list[Any]:
    """What to check of a file: attention layers; else all layers; else functions whose names are known."""
    named = [one for one in classes if is_named_attention(one.__name__)]
    return named or classes or [one for one in functions if _is_known(one)]


def _is_known(function: Any) -> bool:
    return is_known(function.__name__, function.__code__.co_varnames[: function.__code__.co_argcount])


def is_named_attention(name: str) -> bool:
    """Does the name of a class say that it is attention?

    >>> is_named_attention("MultiHeadAttention"), is_named_attention("FeedForward")
    (True, False)
    """
    return any(word in name.lower() for word in _ATTENTION)


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
