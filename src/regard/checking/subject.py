"""Subjects: the learner's class, function or instance, and how experiments are run with it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from regard.checking import driver


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


@dataclass
class Observation:
    """What an experiment showed."""

    contents: dict[str, Any]  # parameters, buffers, saved, loose, attributes, dropouts
    runs: list[Run]
    recorded: list[Recorded]
    failed: Failure | None = None  # before any call: while it was built

    @property
    def failure(self) -> Failure | None:
        """The first failure."""
        return self.failed or next((run.failed for run in self.runs if run.failed), None)


class Subject(Protocol):
    """Something to check. `described` is as driver.describe_class or describe_function gives it."""

    described: dict[str, Any]

    def run(self, job: dict[str, Any], tensors: dict[str, Tensor]) -> Observation:
        """Run one experiment."""


class LocalSubject:
    """A class, function or module in this process."""

    def __init__(self, target: Any) -> None:
        self.target = target
        if inspect.isfunction(target):
            self.described = driver.describe_function(target)
        else:
            self.described = driver.describe_class(target if isinstance(target, type) else type(target))
        self.is_built = isinstance(target, nn.Module)

    def run(self, job: dict[str, Any], tensors: dict[str, Tensor]) -> Observation:
        """Run one experiment, here."""
        return read(*driver.run(self.target, job, tensors))


def read(seen: dict[str, Any], tensors: dict[str, Tensor]) -> Observation:
    """What the driver returned."""
    runs = [
        Run([tensors[name] for name in one["outputs"]], _failure(one.get("failed")), tuple(one["changed"]))
        for one in seen["calls"]
    ]
    recorded = [Recorded(one["name"], one["line"], tensors[f"recorded.{i}"]) for i, one in enumerate(seen["recorded"])]
    contents = {name: value for name, value in seen.items() if name not in ("calls", "recorded", "failed")}
    return Observation(contents, runs, recorded, _failure(seen.get("failed")))


def _failure(one: dict[str, Any] | None) -> Failure | None:
    return None if one is None else Failure(**one)
