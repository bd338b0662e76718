"""Subjects: the learner's class, function or instance, and how experiments are run with it."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.school.check.learner_code import driver
from regard.school.check.learner_code.protocol import Description, DriverJob, ModuleInside, Observation, read_report
from regard.school.check.learner_code.text_hints import own_text
from regard.school.check.learner_code.trials import run_trials
from regard.school.sandbox.stand_ins import STAND_IN, Unavailable
from regard.support.torch_threads import limit_threads

_NUMPY, _TORCH = r"\bnp\.|\bnumpy\.", r"\btorch\.|\bF\.|\bnn\.|\.(softmax|masked_fill|permute|unsqueeze)\("


@runtime_checkable
class Subject(Protocol):
    """Something to check."""

    described: Description
    is_built: bool
    source: str  # the text of its file, for line numbers; "" where there is none
    file: str
    ran: set[int]  # the lines of its file that experiments ran so far
    passed: set[str]  # the arguments of its calls that experiments passed so far

    def run(self, job: DriverJob, tensors: dict[str, Tensor]) -> Observation:
        """Run one experiment."""


def passed_arguments(described: Description, job: DriverJob) -> Iterator[str]:
    """The names of the arguments that the calls of a job pass; what changes nothing, as zeros do, is not passed."""
    names = [p["name"] for p in described["call"]]
    for call in job.get("calls", ()):
        if "method" not in call:
            given = [*zip(names, call["args"], strict=False), *call.get("kwargs", {}).items()]
            yield from (name for name, one in given if one != {"value": None} and not str(one).startswith("zeros"))


def never_passed(subject: Subject) -> list[str]:
    """The arguments of a call that no experiment passed; of which a verdict says nothing."""
    kinds = ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")
    return [p["name"] for p in subject.described["call"] if p["kind"] in kinds and p["name"] not in subject.passed]


def is_function(subject: Subject) -> bool:
    """Is it a function, not a class?"""
    return "build" not in subject.described


def run_function(subject: Subject, job: DriverJob, tensors: dict[str, Tensor]) -> Observation:
    """Call a function with tensors, arrays or lists of numbers, whichever it takes; what its text speaks of first."""
    text = own_text(subject.source, subject.described["name"])
    is_array = bool(re.search(_NUMPY, text)) and not re.search(_TORCH, text)
    first: DriverJob = {**job, "numpy": job.get("numpy", False) or is_array}
    seen = subject.run(first, tensors)
    if not all(run.failed for run in seen.runs):
        return replace(seen, is_numpy=first["numpy"])
    others: list[DriverJob] = [{**job, "numpy": not first["numpy"]}]
    others += [] if re.search(f"{_NUMPY}|{_TORCH}", text) else [{**job, "numpy": False, "lists": True}]
    for one in others:
        again = subject.run(one, tensors)
        if not all(run.failed for run in again.runs):
            return replace(again, is_numpy=one["numpy"] or one.get("lists", False))
    return seen


class NotHere(Exception):
    """A run needed something that is not here, such as a package; the message says what."""


def available(seen: Observation) -> Observation:
    """What was observed. Raises NotHere where a package or a value was missing: that is no mistake of the learner's."""
    failures = [seen.failed, *(run.failed for run in seen.runs)]
    for failed in failures:
        if failed is not None and failed.type == Unavailable.__name__:
            raise NotHere(failed.message)
        if failed is not None and failed.type == "ModuleNotFoundError":
            raise NotHere(f"what is not installed here: {failed.message}")
        if failed is not None and (named := STAND_IN.search(failed.message)):
            raise NotHere(named[1])
    return seen


class LocalSubject:
    """A class, function or module in this process."""

    def __init__(self, target: Any, source: str = "", file: str = "", name: str = "") -> None:
        self.target = target
        if inspect.isfunction(target):
            self.described = driver.describe_function(target, name)
        else:
            self.described = driver.describe_class(target if isinstance(target, type) else type(target), name)
        self.is_built = isinstance(target, nn.Module)
        self.source, self.file = (source, file) if source else _source(target)
        self.ran: set[int] = set()
        self.passed: set[str] = set()

    def run(self, job: DriverJob, tensors: dict[str, Tensor]) -> Observation:
        """Run one experiment, here, with its own seed."""
        with limit_threads(1), torch.random.fork_rng(devices=[]):
            run = run_trials if "trials" in job else driver.run
            shown = available(read_report(*run(self.target, job, tensors), tensors))
        self.ran |= {*shown.ran}
        self.passed |= {*passed_arguments(self.described, job)}
        return shown


class InsideSubject:
    """A module inside something that is checked: the attention of a block or of a whole model."""

    def __init__(self, whole: Subject, inside: ModuleInside) -> None:
        self.whole, self.path = whole, inside["path"]
        self.described: Description = {
            "name": inside["name"],
            "build": whole.described["build"],
            "call": inside["call"],
        }
        self.is_built, self.source, self.file, self.ran = whole.is_built, whole.source, whole.file, whole.ran
        self.passed: set[str] = set()

    def run(self, job: DriverJob, tensors: dict[str, Tensor]) -> Observation:
        """Run one experiment with the module inside."""
        self.passed |= {*passed_arguments(self.described, job)}
        return self.whole.run({**job, "inside": self.path}, tensors)


def is_class(subject: Subject) -> bool:
    """Is it a class that the check itself builds, neither an instance nor a module inside something else?"""
    return not subject.is_built and not isinstance(subject, InsideSubject)


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
