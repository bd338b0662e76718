"""An answer to an exercise: the learner's file, checked part by part; the first part that is wrong is reported.

The learner's code runs in a process of its own and returns values. What is right, what is wrong and the judges stay here.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.checking.check import check_subject
from regard.checking.sandboxed import Submission, SubmissionStopped, malformed, own_limits
from regard.checking.subject import Failure
from regard.checking.values import Request
from regard.checking.verdict import Finding, Verdict
from regard.exercises import plain_calls
from regard.exercises.comparing import describe_value, first_difference, is_same
from regard.exercises.exercise import Exercise
from regard.exercises.parts import Function, Judged, Layer, Part, Question, Wrong
from regard.exercises.plain_calls import read_plain, write_plain
from regard.exercises.questions import answer_finding
from regard.exercises.unwritten import unwritten_lines
from regard.sandbox.outcome import SubmissionFailure
from regard.sandbox.protection import Protection
from regard.sandbox.worker import Worker

DRIVER = Path(plain_calls.__file__).read_text(encoding="utf-8") + (
    "\n\ndef drive(submission, tensors, values):\n"
    "    torch.set_num_threads(1)\n"
    "    seen, returned = call_by_name(submission, values, tensors)\n"
    "    return returned, seen\n"
)
SECONDS = 20.0  # for all parts together


@dataclass
class AnswerVerdict(Verdict):
    """The verdict on an answer; with what the learner's code printed, and results to be drawn after success."""

    printed: str = ""
    pictures: list[Tensor] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Everything but the pictures, in plain values."""
        result = replace(self, pictures=[])._as_json()
        del result["pictures"]
        return result

    def _as_json(self) -> dict[str, Any]:
        return super().as_json()


@dataclass
class Called:
    """What came of calling a learner's function: results, and why the last call failed."""

    results: list[Any] = field(default_factory=list)
    failed: Failure | None = None
    is_callable: bool = True
    is_missing: bool = False


def own_worker(seconds: float | int = SECONDS) -> Worker:
    """A warm process for a person's own files: limits of time and memory, and regard can be imported."""
    return Worker(own_limits(seconds), Protection.for_own_file())


def check_answer(
    exercise: Exercise, worker: Worker, path: Path | str, seed: int | None = None, seconds: float | int = SECONDS
) -> AnswerVerdict:
    """Check a learner's file. Every check has a fresh seed, unless one is given.

    Its findings have the name of a wrong answer of the exercise, or one of: not written yet, does not run, not defined,
    not a function, fails, out of memory, returns nothing, wrong shape, another kind of result; "" where it is wrong in another way.
    """
    path = Path(path)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"{error.strerror}"
        return AnswerVerdict(path.name, exercise.title, file=str(path), problem=problem)
    return check_source(exercise, Submission(path, worker, seconds), source, str(path), seed)


def check_source(
    exercise: Exercise, submission: Submission, source: str, file: str, seed: int | None = None
) -> AnswerVerdict:
    """The same for a file or folder that runs elsewhere, whose source is known."""
    verdict = AnswerVerdict(exercise.name, exercise.title, file=file)
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    findings = _before_running(source)
    if findings:
        verdict.name = Path(file).name
    try:
        for part in () if findings else exercise.parts:
            verdict.name = exercise.name if isinstance(part, Question) else part.name
            findings = _checked(part, submission, source, seed, verdict)
            if any(not one.is_warning for one in findings) or verdict.problem:
                break
            verdict.name = exercise.name
    except SubmissionStopped as stopped:
        outcome = stopped.outcome
        verdict.printed = verdict.printed or outcome.output
        if outcome.failure is not None and outcome.failure.stage == "load" and outcome.word == "failed":
            verdict.name, findings = Path(file).name, [_does_not_run(outcome.failure)]
        else:
            verdict.problem = f"{outcome.word}: {outcome.sentence}"
    lines = source.splitlines()
    verdict.findings = [
        replace(one, code=lines[one.line - 1].strip()) if 0 < one.line <= len(lines) else one for one in findings
    ]
    return verdict


def _before_running(source: str) -> list[Finding]:
    """What can be said without running the file."""
    try:
        lines = unwritten_lines(source)
    except SyntaxError as error:
        return [Finding("does not run", f"The file does not run: {error.msg} (SyntaxError).", line=error.lineno or 0)]
    except ValueError as error:  # a null byte, in older versions of Python
        return [Finding("does not run", f"The file does not run: {error}.")]
    if not lines:
        return []
    more = "" if len(lines) == 1 else f", and so {'is' if len(lines) == 2 else 'are'} {_listed(lines[1:])}"
    return [Finding("not written yet", f"Line {lines[0]} is not written yet{more}.", line=lines[0])]


def _listed(lines: Sequence[int]) -> str:
    return f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"


def _does_not_run(failure: SubmissionFailure) -> Finding:
    message = f"{failure.type}: {failure.message}".splitlines()[0].rstrip(": ")
    line = failure.lines[-1].line if failure.lines else 0
    return Finding("does not run", f"The file does not run: {message}.", line=line)


def _checked(part: Part, submission: Submission, source: str, seed: int, verdict: AnswerVerdict) -> list[Finding]:
    """What is wrong with one part."""
    if isinstance(part, Layer):
        return _check_layer(part, submission, source, seed, verdict)
    if isinstance(part, Question):
        called = _call(part.name, [()], submission, seed, verdict)
        return [_not_defined(part)] if called.is_missing else answer_finding(part, called.results)
    runs = [_arguments(part, seed + run) for run in range(part.runs)]
    called = _call(part.name, runs, submission, seed, verdict)
    if called.is_missing:
        return [_not_defined(part)]
    if not called.is_callable and (isinstance(part, Function) or part.arguments is not None):
        says = f"{part.name} is {describe_value(called.results[0])}, not a function."
        return [Finding("not a function", says)]
    check: Callable[..., Finding | None] = _check_function if isinstance(part, Function) else _check_judged
    finding = check(part, called, runs, seed)
    if finding is None and isinstance(part, Function) and part.picture and isinstance(called.results[0], Tensor):
        verdict.pictures.append(called.results[0])
    return [] if finding is None else [finding]


def _arguments(part: Function | Judged, seed: int) -> tuple[Any, ...]:
    if part.arguments is None:
        return ()
    return tuple(part.arguments(torch.Generator().manual_seed(seed)))


def _not_defined(part: Part) -> Finding:
    return Finding("not defined", f"It defines no {part.name}.")


def _call(
    name: str, runs: Sequence[Sequence[Any]], submission: Submission, seed: int, verdict: AnswerVerdict
) -> Called:
    """Call a function of the learner's in its process, once for every run."""
    tensors: dict[str, Tensor] = {}
    calls = [
        {"arguments": [write_plain(one, tensors) for one in arguments], "seed": seed + run}
        for run, arguments in enumerate(runs)
    ]
    outcome = submission.run({"name": name, "calls": calls}, tensors, DRIVER)
    verdict.printed = verdict.printed or outcome.output
    try:
        seen = outcome.values
        if seen.get("missing"):
            return Called(is_missing=True)
        results, failed = [], None
        for one in seen["calls"]:
            if "failed" in one:
                failed = Failure(**one["failed"])
            else:
                results.append(read_plain(one["result"], dict(outcome.tensors)))
        if len(results) != len(runs) and failed is None:
            raise ValueError("results are missing")
        return Called(results, failed, bool(seen["callable"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SubmissionStopped(malformed(f"{type(error).__name__}: {error}")) from error


def _check_function(part: Function, called: Called, runs: Sequence[tuple[Any, ...]], seed: int) -> Finding | None:
    if called.failed is not None:
        return _failing(part.wrong, called.failed, runs[0])
    pairs = [(arguments, seen) for arguments, seen in zip(runs, called.results, strict=True)]
    for run, (arguments, seen) in enumerate(pairs):
        expected = call_own(part.right, arguments, seed + run)
        difference = first_difference(seen, expected, part.tolerance)
        if difference is None:
            continue
        example = difference.example
        if example is not None:
            example = replace(example, about=f"{_call_text(part.name, arguments)}: {example.about}")
        wrong = next((one for one in part.wrong if _explains(one, part, pairs, seed)), None)
        if wrong is not None:
            return Finding(wrong.name, wrong.says.format(*arguments), wrong.why, example=example, step="result")
        return Finding(difference.name, difference.says, example=example, step="result")
    return None


def call_own(function: Callable[..., Any], arguments: Sequence[Any], seed: int) -> Any:
    """Call a teacher's function with copies of the arguments; its result as the learner's comes back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        value = function(*copy.deepcopy(arguments))
    tensors: dict[str, Tensor] = {}
    return read_plain(write_plain(value, tensors), tensors)


def _explains(wrong: Wrong, part: Function, pairs: Sequence[tuple[tuple[Any, ...], Any]], seed: int) -> bool:
    """Does this wrong answer give the same result in every run?"""
    if wrong.act is None:
        return False
    for run, (arguments, seen) in enumerate(pairs):
        try:
            value = call_own(wrong.act, arguments, seed + run)
        except Exception:  # it cannot be made with these arguments
            return False
        if not is_same(seen, value, part.tolerance):
            return False
    return True


def _failing(wrong: Sequence[Wrong], failed: Failure, arguments: Sequence[Any]) -> Finding:
    """What an exception means."""
    message = f"{failed.type}: {failed.message.strip()}"
    for one in wrong:
        if one.raises and one.raises in message:
            return Finding(one.name, one.says.format(*arguments), one.why, line=failed.line)
    if failed.type == "MemoryError" or "DefaultCPUAllocator" in message:
        return Finding("out of memory", "It needs more memory than it may have.", line=failed.line)
    first = message.split("\n")[0].rstrip(":. ")
    return Finding("fails", f"It fails: {first}.", line=failed.line)


def _check_judged(part: Judged, called: Called, runs: Sequence[tuple[Any, ...]], seed: int) -> Finding | None:
    if called.failed is not None:
        return _failing((), called.failed, runs[0])
    for run, (arguments, seen) in enumerate(zip(runs, called.results, strict=True)):
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed + run)
                fault = part.judge(seen, *copy.deepcopy(arguments))
        except Exception as error:
            says = f"It returns {describe_value(seen)}, which cannot be judged: {type(error).__name__}: {error}."
            return Finding("returns nothing" if seen is None else "another kind of result", says)
        if fault is not None:
            return Finding(fault.name, fault.says, fault.why)
    return None


def _call_text(name: str, arguments: Sequence[Any]) -> str:
    """The call of an example, with tensors by their shapes.

    >>> _call_text("scale", [torch.zeros(2, 5), 7])
    'scale(2 × 5, 7)'
    """

    def text(value: Any) -> str:
        if isinstance(value, Tensor):
            return " × ".join(map(str, value.shape)) or f"{value.item():.4g}"
        if isinstance(value, (list, tuple, dict)):
            return f"{type(value).__name__} of {len(value)}"
        return repr(value if not isinstance(value, str) or len(value) <= 20 else value[:20] + "…")

    return f"{name}({', '.join(map(text, arguments))})"


def _check_layer(part: Layer, submission: Submission, source: str, seed: int, verdict: AnswerVerdict) -> list[Finding]:
    subjects = submission.subjects(part.name, source, verdict.file)
    if not subjects:
        return [_not_defined(part)]
    own, weights = dict(part.arguments or {}), dict(part.weights or {})
    request = Request(part.causal, own, weights, seed=seed, mistakes=tuple(part.mistakes))
    checked = check_subject(subjects[0], request)
    verdict.problem, verdict.sizes = checked.problem, checked.sizes
    verdict.notes += checked.notes
    return checked.findings
