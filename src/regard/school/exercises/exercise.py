"""An exercise: its parts, each a function, a layer, a question or an answer that a judge looks at; and exercise.py."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from regard.mistakes.mistake import Mistake

Arguments = Callable[[torch.Generator], Sequence[Any]]


@dataclass(frozen=True)
class Wrong:
    """A wrong answer that has a name: a function that gives the same result, or a part of the message it fails with.

    says: what the learner's function does and what it should do; {0}, {1} … are its arguments, numbers or texts.
    """

    name: str
    says: str
    act: Callable[..., Any] | None = None
    why: str = ""
    raises: str = ""


@dataclass(frozen=True)
class Function:
    """A function that the learner writes. It is called with fresh arguments, and compared with `right`.

    picture: "weights" where the result is a (T, S) tensor of weights, to be drawn after success.
    through: a function that calls it, `through(function, *arguments)`, in the learner's process; compared is what that
        returns. It builds what is no plain value, or counts; it imports what it needs inside. Of `right` and of wrong
        answers, too, it is the result that is compared.
    """

    name: str
    arguments: Arguments
    right: Callable[..., Any]
    wrong: Sequence[Wrong] = ()
    tolerance: float | int = 1e-5  # of the largest number of a tensor
    runs: int = 3
    picture: str = ""
    same_dtype: bool = False  # must a tensor have the dtype of the right one?
    through: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Layer:
    """A layer or function of attention, checked as `regard check` does it.

    causal, arguments and weights are those of `regard.check`; mistakes are more than those that it knows.
    plain: nothing but the formula is right, so no residual inside, and dropout on the weights only.
    """

    name: str
    causal: bool | None = None
    arguments: Mapping[str, Any] | None = None
    weights: Mapping[str, str] | None = None
    mistakes: Sequence[Mistake] = ()
    plain: bool = False


@dataclass(frozen=True)
class Question:
    """A value at top level of the learner's file, `answer_1 = "b"`. because: why each wrong choice is wrong."""

    name: str
    right: Any
    because: Mapping[Any, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """What a judge finds wrong with an answer."""

    name: str
    says: str
    why: str = ""


@dataclass(frozen=True)
class Judged:
    """A function with many right answers. judge(result, *arguments) returns None for a right one, else a Fault.

    Without arguments, the name may be that of a value, too. `through` is as in Function: the judge gets its result.
    wrong: answers that fail, known by their message.
    """

    name: str
    arguments: Arguments | None
    judge: Callable[..., Fault | None]
    runs: int = 1
    through: Callable[..., Any] | None = None
    wrong: Sequence[Wrong] = ()


@dataclass(frozen=True)
class Picture:
    """What the learner's own code does with a sentence, drawn after success: weights with their words.

    calls: the arguments of every call of the function; of a class, it is built with `build`, loaded with `state`, and
    the module is called. weights: what is drawn of the results, (H, T, S). keys: the words of the columns.
    """

    name: str
    calls: Sequence[Sequence[Any]]
    weights: Callable[[Sequence[Any]], torch.Tensor]
    says: str
    queries: Sequence[str]
    keys: Sequence[str] = ("The", "cat", "sat", "on", "the", "mat")
    build: Sequence[Any] = ()
    state: Mapping[str, torch.Tensor] = field(default_factory=dict)


Part = Function | Layer | Question | Judged


@dataclass(frozen=True)
class Exercise:
    """What is asked for. `name` is that of the folder, `title` the first line of the docstring.

    uses: the exercises whose answers this one imports; they must be right first.
    """

    name: str
    title: str
    parts: tuple[Part, ...]
    passes_unsolved: bool = False
    path: Path | None = None  # of exercise.py
    picture: Picture | None = None
    without: Mapping[str, str] = field(default_factory=dict)  # names of torch that are not to be used, and why
    uses: tuple[str, ...] = ()


def load_exercise(path: Path | str) -> Exercise:
    """The exercise of a file, or of a folder with an exercise.py; ValueError says what is wrong with it."""
    path = Path(path)
    path = path / "exercise.py" if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"{path} does not exist; an exercise is a file exercise.py with parts = [...]")
    folder = path.resolve().parent
    module = _run(path, folder)
    title = (module.__doc__ or "").strip().split("\n")[0]
    if not title:
        raise ValueError(f"{path} has no docstring; its first line is the exercise's title")
    parts = getattr(module, "parts", None)
    if not isinstance(parts, (list, tuple)) or not parts:
        raise ValueError(f"{path} has no parts; write parts = [Function(...)], or Layer, Question, Judged")
    for part in parts:
        if not isinstance(part, Part):
            raise ValueError(f"{path}: {part!r} is no part; parts are Function, Layer, Question and Judged")
        if not part.name.isidentifier():
            raise ValueError(f"{path}: {part.name!r} is no name of Python; a part has the name of what is written")
    unsolved = bool(getattr(module, "passes_unsolved", False))
    without = dict(getattr(module, "without", {}))
    picture = getattr(module, "picture", None)
    if not isinstance(picture, Picture | None):
        raise ValueError(f"{path}: picture must be a Picture")
    uses = tuple(getattr(module, "uses", ()))
    if missing := [one for one in uses if not (folder.parent / str(one) / "exercise.py").is_file()]:
        raise ValueError(f"{path} uses {missing[0]}, which is no exercise beside it")
    return Exercise(folder.name, title, tuple(parts), unsolved, path.resolve(), picture, without, uses)


def _run(path: Path, folder: Path) -> ModuleType:
    """Run the teacher's file as a module; it may import files beside it."""
    module = ModuleType(f"_exercise_{folder.name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look there
    linecache.checkcache(str(path))
    sys.path.insert(0, str(folder))
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(module))
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg} (SyntaxError)") from error
    except Exception as error:
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
        where = f", line {lines[-1]}" if lines else ""
        raise ValueError(f"{path}{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(folder))
    return module
