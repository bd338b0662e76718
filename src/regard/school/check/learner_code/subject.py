"""Subjects: the learner's class, function or instance, and how experiments are run with it."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.school.check.learner_code import driver


@dataclass(frozen=True)
class Failure:
    """An exception in the learner's code."""

    type: str
    message: str
    line: int = 0
    function: str = ""


@dataclass
class Run:
    """One call: its tensors, or why it failed, and which of its arguments it changed."""

    outputs: list[Tensor] = field(default_factory=list)
    failed: Failure | None = None
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """A torch call inside the learner's code."""

    name: str
    line: int
    value: Tensor
    inputs: tuple[int, ...] = ()  # the numbers of the calls that made what it works on


@dataclass(frozen=True)
class Dropped:
    """A call of dropout and the tensor that it acted on; an empty one where it acts on the weights of a fused kernel."""

    p: float
    line: int
    value: Tensor


@dataclass
class Observation:
    """What an experiment showed."""

    contents: dict[str, Any]  # parameters, buffers, loose, attributes, dropouts, methods, without_gradient
    runs: list[Run]
    recorded: list[Recorded]  # torch calls of the constructor, then of the first call
    built: int = 0  # how many of them are the constructor's
    dropped: list[Dropped] = field(default_factory=list)
    failed: Failure | None = None  # before any call: while it was built

    @property
    def failure(self) -> Failure | None:
        """The first failure."""
        return self.failed or next((run.failed for run in self.runs if run.failed), None)


@runtime_checkable
class Subject(Protocol):
    """Something to check. `described` is as driver.describe_class or describe_function gives it."""

    described: dict[str, Any]
    is_built: bool
    source: str  # the text of its file, for line numbers; "" where there is none
    file: str

    def run(self, job: dict[str, Any], tensors: dict[str, Tensor]) -> Observation:
        """Run one experiment."""


class LocalSubject:
    """A class, function or module in this process."""

    def __init__(self, target: Any, source: str = "", file: str = "") -> None:
        self.target = target
        if inspect.isfunction(target):
            self.described = driver.describe_function(target)
        else:
            self.described = driver.describe_class(target if isinstance(target, type) else type(target))
        self.is_built = isinstance(target, nn.Module)
        self.source, self.file = (source, file) if source else _source(target)

    def run(self, job: dict[str, Any], tensors: dict[str, Tensor]) -> Observation:
        """Run one experiment, here: on one thread, which is much quicker for small tensors, and with its own seed."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.random.fork_rng(devices=[]):
                return read(*driver.run(self.target, job, tensors), tensors)
        finally:
            torch.set_num_threads(threads)


class InsideSubject:
    """A module inside something that is checked: the attention of a block or of a whole model."""

    def __init__(self, whole: Subject, inside: dict[str, Any]) -> None:
        self.whole, self.path = whole, inside["path"]
        self.described = {**inside, "build": whole.described["build"]}
        self.is_built, self.source, self.file = whole.is_built, whole.source, whole.file

    def run(self, job: dict[str, Any], tensors: dict[str, Tensor]) -> Observation:
        """Run one experiment with the module inside."""
        return self.whole.run({**job, "inside": self.path}, tensors)


def read(seen: dict[str, Any], tensors: dict[str, Tensor], given: Mapping[str, Tensor]) -> Observation:
    """What the driver returned; `given` are the tensors that it was given."""
    runs = [
        Run(
            [tensors[name] for name in one["outputs"]],
            _failure(one.get("failed")),
            tuple(name for name, after in one["after"].items() if not _unchanged(tensors[after], given[name])),
        )
        for one in seen["calls"]
    ]
    recorded = [
        Recorded(one["name"], one["line"], tensors[f"recorded.{i}"], tuple(one["inputs"]))
        for i, one in enumerate(seen["recorded"])
    ]
    dropped = [Dropped(one["p"], one["line"], tensors[f"dropped.{i}"]) for i, one in enumerate(seen["dropped"])]
    apart = ("calls", "recorded", "dropped", "built", "failed")
    contents = {name: value for name, value in seen.items() if name not in apart}
    return Observation(contents, runs, recorded, seen.get("built", 0), dropped, _failure(seen.get("failed")))


def _unchanged(value: Tensor, original: Tensor) -> bool:
    original = original.to(value.dtype)
    return value.shape == original.shape and bool(((value == original) | (value.isnan() & original.isnan())).all())


def _failure(one: dict[str, Any] | None) -> Failure | None:
    return None if one is None else Failure(**one)


def _source(target: Any) -> tuple[str, str]:
    """The text and the name of the file in which it is written, where there is one."""
    one = target if inspect.isfunction(target) or isinstance(target, type) else type(target)
    try:
        file = inspect.getsourcefile(inspect.unwrap(one)) or ""
        lines, _ = inspect.findsource(one)
    except (OSError, TypeError):
        functions = [value for value in vars(one).values() if inspect.isfunction(value)]
        cells = {function.__code__.co_filename for function in functions}  # the cell of a notebook, which is no file
        return ("".join(linecache.getlines(cells.pop())), "") if len(cells) == 1 else ("", "")
    return "".join(lines), file
