"""Calling: a learner's function or layer in its own process, and a teacher's function in this one.

Layers are checked by the whole engine of `regard check`. With other people's files, every experiment is a process of
its own, and comparing happens here. A person's own file is loaded once, and all of the check happens in its process:
that is quicker by some twenty processes.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from regard.school.check.check import check_subject
from regard.school.check.learner_code.protocol import Failure, fits
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.learner_code.submission import Submission, SubmissionStopped, malformed
from regard.school.check.own_file import read_verdicts, write_verdicts
from regard.school.check.request import Request
from regard.school.check.verdict import Verdict
from regard.school.exercises import plain_calls
from regard.school.exercises.comparing import describe_value, is_same
from regard.school.exercises.exercise import Exercise, Function, Judged, Layer, load_exercise
from regard.school.exercises.plain_calls import read_plain, write_plain

DRIVER = Path(plain_calls.__file__).read_text(encoding="utf-8")
LAYER_DRIVER = """
def drive(submission, tensors, values):
    from regard.school.exercises.calling import drive_layer
    return drive_layer(submission, values)
"""


@dataclass
class Called:
    """What came of calling a learner's function: results, and why the last call failed."""

    results: list[Any] = field(default_factory=list)
    after: list[Any] = field(default_factory=list)  # the arguments of each result, as the call left them
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
    name: str,
    runs: Sequence[Sequence[Any]],
    submission: Submission,
    seed: int,
    *,
    read: bool = False,
    module: tuple[Sequence[Any], Mapping[str, Tensor]] | None = None,
    through: Callable[..., Any] | None = None,
) -> Called:
    """Call a function of the learner's in its process, once for every run; with `read`, its value is read instead.

    module: it is a class; the module that is called is built with these arguments and has these weights.
    through: what calls it there, with it as the first argument; its text is sent.
    """
    tensors: dict[str, Tensor] = {}
    written = [[write_plain(one, tensors) for one in arguments] for arguments in runs]
    calls = [{"arguments": arguments, "seed": seed + run} for run, arguments in enumerate(written)]
    text = [through.__name__, inspect.getsource(through)] if through else []
    job = {"name": name, "calls": calls, "read": read, "through": text}
    if module is not None:
        build, state = module
        job["module"] = [write_plain(tuple(build), tensors), write_plain(dict(state), tensors)]
    outcome = submission.run(job, tensors, DRIVER)
    try:
        seen = outcome.values
        if seen.get("missing"):
            return Called(is_missing=True, printed=outcome.output)
        results, after, failed = [], [], None
        for one in seen["calls"]:
            if "failed" not in one:
                results.append(read_plain(one["result"], dict(outcome.tensors)))
                after.append(read_plain(one["after"], dict(outcome.tensors)))
            elif not fits(one["failed"], Failure):
                raise ValueError("a failure is not what a driver writes")
            else:
                failed = Failure(**one["failed"])
        if len(results) >= len(runs) if failed is not None else len(results) != len(runs):
            raise ValueError(f"it tells of {len(results)} results for {len(runs)} calls")
        return Called(results, after, failed, bool(seen["callable"]), printed=outcome.output)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SubmissionStopped(malformed(f"{type(error).__name__}: {error}")) from error


def call_own(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    seed: int,
    through: Callable[..., Any] | None = None,
) -> Any:
    """Call a teacher's function, as the learner's is called; its result as the learner's comes back."""
    called = partial(through, function) if through else function
    return _plain(call_seeded(called, arguments, seed))


def call_seeded(function: Callable[..., Any], arguments: Sequence[Any], seed: int) -> Any:
    """Call a function with copies of the arguments and with random numbers of the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return function(*copy.deepcopy(arguments))


def _plain(value: Any) -> Any:
    """A teacher's value as it would come back from a learner's process."""
    tensors: dict[str, Tensor] = {}
    return read_plain(write_plain(value, tensors), tensors)


def check_layer(
    exercise: Exercise, part: Layer, submission: Submission, source: str, file: str, seed: int
) -> tuple[Verdict | None, str]:
    """The verdict on a layer, None where the file defines none of its name; and what was printed."""
    if submission.worker.is_confined or exercise.path is None:
        own = submission.contents(source, file, skips=False).own
        subjects = [one for one in own if one.described["name"] == part.name]
        return (check_subject(subjects[0], _request(part, seed)) if subjects else None), ""
    number = next(i for i, one in enumerate(exercise.parts) if one is part)
    values = {"exercise": str(exercise.path), "part": number, "source": source, "file": file, "seed": seed}
    outcome = submission.run(values, {}, LAYER_DRIVER)
    verdicts = read_verdicts(outcome.values, outcome.tensors)
    return (verdicts[0] if verdicts else None), outcome.output


def drive_layer(module: ModuleType, values: Mapping[str, Any]) -> tuple[dict[str, Tensor], list[Any]]:
    """Check a layer of a module in this process, and write the verdict down; none where it is not defined."""
    part = load_exercise(values["exercise"]).parts[values["part"]]
    if not isinstance(part, Layer):
        raise TypeError(f"part {values['part']} is no Layer")
    target = vars(module).get(part.name)
    if target is None:
        return {}, []
    subject = LocalSubject(target, values["source"], values["file"])
    return write_verdicts([check_subject(subject, _request(part, values["seed"]))])


def _request(part: Layer, seed: int) -> Request:
    own, weights = dict(part.arguments or {}), dict(part.weights or {})
    return Request(part.causal, own, weights, seed=seed, mistakes=tuple(part.mistakes), plain=part.plain)
