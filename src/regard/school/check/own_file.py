"""A person's own file, checked in a process of its own with limits of time and memory: an endless loop is a verdict.

The file is loaded once, and all of the check happens there. For other people's files, see submission.py.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.school.check.learner_code.loading import load_file
from regard.school.check.learner_code.submission import own_limits
from regard.school.check.request import Request
from regard.school.check.verdict import Example, Finding, Verdict
from regard.school.check.whole_file import NOTHING, check_all
from regard.school.sandbox.modules import neighbours
from regard.school.sandbox.source_text import read_source, with_cells
from regard.school.sandbox.worker import Job, Worker

DRIVER = """
def drive(path, tensors, values):
    from regard.school.check.own_file import drive_here
    return drive_here(values)
"""


def check_file(
    path: Path,
    name: str,
    worker: Worker,
    *,
    causal: bool | None = None,
    arguments: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    seconds: float | int = 20.0,
) -> list[Verdict]:
    """The verdicts on a file: on the class or function of this name, or on the layers that look like attention.

    The options are those of `check`; arguments are plain values.
    """
    source = read_source(path)  # what cannot be read is said before anything is started
    request = repr({"causal": causal, "own": dict(arguments or {}), "names": dict(names or {})})
    values = {"path": str(path), "name": name, "request": request}
    outcome = worker.run(Job(path, DRIVER, {}, values, limits=own_limits(seconds), loads=False))
    if outcome.finished:
        return read_verdicts(outcome.values, outcome.tensors)
    failure = outcome.failure
    if failure is not None and outcome.word == "failed" and failure.type == "ValueError":
        raise ValueError(failure.message)  # about the file or the options; an error of the learner's code is a finding
    problem = f"{outcome.word}: {outcome.sentence}"
    problem = with_cells(problem, source)
    if outcome.word == "failed":
        problem = f"the check itself failed ({outcome.sentence.removeprefix('It raised ')})"
    return [Verdict(name or path.name, "", file=str(path), problem=problem)]


def drive_here(values: Mapping[str, Any]) -> tuple[dict[str, Tensor], list[Any]]:
    """Check a file in this process, and write the verdicts down."""
    request = Request(**ast.literal_eval(values["request"]))
    return write_verdicts(check_here(Path(values["path"]), values["name"], request))


def check_here(path: Path, name: str, request: Request) -> list[Verdict]:
    """The verdicts on a file, in this process."""
    with neighbours(str(path)):
        verdicts = list(check_all(load_file(path), request, name))
    for verdict in verdicts:
        verdict.problem += "; say which class or function: FILE.py:NAME" if verdict.problem == NOTHING else ""
    return verdicts


def write_verdicts(verdicts: Sequence[Verdict]) -> tuple[dict[str, Tensor], list[Any]]:
    """Verdicts as JSON, and the tensors of their examples by name."""
    written = [asdict(verdict) for verdict in verdicts]
    examples = [one["example"] for verdict in written for one in verdict["findings"] if one["example"]]
    tensors: dict[str, Tensor] = {}
    for number, example in enumerate(examples):
        tensors |= {f"{name}.{number}": example.pop(name) for name in ("seen", "expected")}
        example["number"] = number
    return tensors, written


def read_verdicts(written: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]) -> list[Verdict]:
    """The verdicts that were written."""

    def finding(one: Mapping[str, Any]) -> Finding:
        if not (example := one["example"]):
            return Finding(**one)
        number = example["number"]
        example = Example(example["about"], tensors[f"seen.{number}"], tensors[f"expected.{number}"])
        return Finding(**{**one, "example": example})

    return [Verdict(**{**one, "findings": [finding(each) for each in one["findings"]]}) for one in written]
