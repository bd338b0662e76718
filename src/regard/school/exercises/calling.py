"""Calling: a learner's function in its own process and a teacher's in this one, both with plain values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.school.check.sandboxed import Submission, SubmissionStopped, malformed
from regard.school.check.subject import Failure
from regard.school.exercises import plain_calls
from regard.school.exercises.comparing import describe_value, is_same
from regard.school.exercises.parts import Function, Judged
from regard.school.exercises.plain_calls import read_plain, write_plain

DRIVER = Path(plain_calls.__file__).read_text(encoding="utf-8") + (
    "\n\ndef drive(submission, tensors, values):\n"
    "    torch.set_num_threads(1)\n"
    "    seen, returned = call_by_name(submission, values, tensors)\n"
    "    return returned, seen\n"
)


@dataclass
class Called:
    """What came of calling a learner's function: results, and why the last call failed."""

    results: list[Any] = field(default_factory=list)
    failed: Failure | None = None
    is_callable: bool = True
    is_missing: bool = False
    printed: str = ""


def arguments_of(part: Function | Judged, seed: int) -> tuple[Any, ...]:
    """The arguments of one run, as the learner's function gets them: plain values."""
    if part.arguments is None:
        return ()
    arguments = part.arguments(torch.Generator().manual_seed(seed))
    if not isinstance(arguments, (tuple, list)):
        raise ValueError(f"arguments of {part.name} returns {describe_value(arguments)}; return a tuple of arguments")
    plain: tuple[Any, ...] = _plain(tuple(arguments))
    if not is_same(plain, plain, 1.0):
        raise ValueError(f"arguments of {part.name} may be tensors, numbers, texts, or lists and dicts of these")
    return plain


def call_learner(
    name: str, runs: Sequence[Sequence[Any]], submission: Submission, seed: int, *, read: bool = False
) -> Called:
    """Call a function of the learner's in its process, once for every run; with `read`, its value is read instead."""
    tensors: dict[str, Tensor] = {}
    calls = [
        {"arguments": [write_plain(one, tensors) for one in arguments], "seed": seed + run}
        for run, arguments in enumerate(runs)
    ]
    outcome = submission.run({"name": name, "calls": calls, "read": read}, tensors, DRIVER)
    try:
        seen = outcome.values
        if seen.get("missing"):
            return Called(is_missing=True, printed=outcome.output)
        results, failed = [], None
        for one in seen["calls"]:
            if "failed" in one:
                failed = _failure(one["failed"])
            else:
                results.append(read_plain(one["result"], dict(outcome.tensors)))
        if len(results) >= len(runs) if failed is not None else len(results) != len(runs):
            raise ValueError(f"it tells of {len(results)} results for {len(runs)} calls")
        return Called(results, failed, bool(seen["callable"]), printed=outcome.output)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SubmissionStopped(malformed(f"{type(error).__name__}: {error}")) from error


def _failure(written: Any) -> Failure:
    """A failure as plain_calls writes it, and nothing else."""
    result = Failure(**written)
    if not all(isinstance(text, str) for text in (result.type, result.message, result.function)):
        raise TypeError("a failure is not described by texts")
    if type(result.line) is not int or not 0 <= result.line < 1 << 31:
        raise ValueError("a failure has no line")
    return result


def call_own(function: Callable[..., Any], arguments: Sequence[Any], seed: int) -> Any:
    """Call a teacher's function with copies of the arguments; its result as the learner's comes back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _plain(function(*copy.deepcopy(arguments)))


def _plain(value: Any) -> Any:
    """A teacher's value as it would come back from a learner's process."""
    tensors: dict[str, Tensor] = {}
    return read_plain(write_plain(value, tensors), tensors)
