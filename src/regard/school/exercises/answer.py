"""An answer to an exercise: the learner's file, checked part by part; the first part that is wrong is reported.

The learner's code runs in a process of its own and returns values. What is right or wrong and the judges stay here.
"""

from __future__ import annotations

import ast
import copy
import inspect
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.school.check.sandboxed import Submission, SubmissionStopped, does_not_run
from regard.school.check.subject import Failure
from regard.school.check.verdict import Finding, Verdict, with_code
from regard.school.exercises.calling import Called, arguments_of, call_learner, call_own
from regard.school.exercises.comparing import describe_value, first_difference, is_same
from regard.school.exercises.exercise import Exercise
from regard.school.exercises.layers import check_layer
from regard.school.exercises.parts import Function, Judged, Layer, Part, Question, Wrong
from regard.school.exercises.questions import answer_finding, quotes_missing
from regard.school.exercises.unwritten import unwritten_lines
from regard.school.sandbox.worker import Worker

SECONDS = 20.0  # for all parts together
MOST_SHOWN, LONGEST_SHOWN = 6, 60  # numbers of a list or tensor that is shown as an argument, and characters


@dataclass
class AnswerVerdict(Verdict):
    """The verdict on an answer; with what the learner's code printed, and results to be drawn after success."""

    printed: str = ""
    pictures: list[Tensor] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Everything but the pictures, in plain values."""
        without = Verdict.as_json(replace(self, pictures=[]))
        del without["pictures"]
        return without


def check_answer(
    exercise: Exercise, worker: Worker, path: Path | str, seed: int | None = None, seconds: float | int = SECONDS
) -> AnswerVerdict:
    """Check a learner's file. Every check has a fresh seed, unless one is given.

    Its findings have the name of a wrong answer of the exercise, or one of: not written yet, does not run, not defined,
    not a function, fails, out of memory, returns nothing, wrong shape, another kind of result; "" where it is wrong in
    another way.
    """
    path = Path(path)
    nothing = AnswerVerdict(path.name, exercise.title, file=str(path))
    try:
        source = path.read_text(encoding="utf-8")
        return check_source(exercise, Submission(path, worker, seconds), source, str(path), seed)
    except UnicodeDecodeError:
        nothing.problem = "it is not UTF-8 text"
    except OSError as error:
        nothing.problem = f"it cannot be read: {error.strerror}"
    except SubmissionStopped as stopped:
        outcome = stopped.outcome
        nothing.printed = outcome.output
        if (failure := outcome.failure_to_load) is not None:
            finding = does_not_run(failure)
            questions = [part for part in exercise.parts if isinstance(part, Question)]
            says = f"{finding.says} {quotes_missing(questions, failure.message)}".rstrip()
            nothing.findings = with_code([replace(finding, says=says)], source)
        else:
            loop = " Is there a loop that never ends?" if outcome.word == "out of time" else ""
            nothing.problem = f"{outcome.word}: {outcome.sentence}{loop}"
    return nothing


def check_source(
    exercise: Exercise, submission: Submission, source: str, file: str, seed: int | None = None
) -> AnswerVerdict:
    """The same for a file or folder whose source is known. Raises SubmissionStopped where a run gave nothing."""
    verdict = AnswerVerdict(exercise.name, exercise.title, file=file)
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    findings = _before_running(source)
    if findings:
        verdict.name = Path(file).name
    for part in () if findings else exercise.parts:
        verdict.name = exercise.name if isinstance(part, Question) else part.name
        findings = _checked(exercise, part, submission, source, seed, verdict)
        if any(not one.is_warning for one in findings) or verdict.problem:
            break
        verdict.name = exercise.name
    verdict.findings = with_code(findings, source)
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
    more = "" if len(lines) == 1 else f", nor {'is' if len(lines) == 2 else 'are'} {_listed(lines[1:])}"
    return [Finding("not written yet", f"Line {lines[0]} is not written yet{more}.", line=lines[0])]


def only_line(source: str, name: str) -> int:
    r"""The line of a function that has one statement; 0 where there are more, and the mistake can be in any of them.

    >>> only_line("def double(x):\n    return x * x", "double")
    2
    """
    for one in ast.parse(source).body:
        if isinstance(one, ast.FunctionDef) and one.name == name:
            body = one.body[1:] if ast.get_docstring(one) is not None else one.body
            return body[0].lineno if len(body) == 1 else 0
    return 0


def _listed(lines: Sequence[int]) -> str:
    *most, last = map(str, lines)
    return f"lines {', '.join(most)} and {last}" if most else f"line {last}"


def _checked(
    exercise: Exercise, part: Part, submission: Submission, source: str, seed: int, verdict: AnswerVerdict
) -> list[Finding]:
    """What is wrong with one part."""
    if isinstance(part, Layer):
        return _check_layer(exercise, part, submission, source, seed, verdict)
    if isinstance(part, Question):
        called = call_learner(part.name, [()], submission, 0, read=True)
        verdict.printed = verdict.printed or called.printed
        return [_not_defined(part)] if called.is_missing else answer_finding(part, called.results)
    runs = [arguments_of(part, seed + run) for run in range(part.runs)]
    called = call_learner(part.name, runs, submission, seed)
    verdict.printed = verdict.printed or called.printed
    finding = _check_called(part, called, runs, seed, source)
    if finding is None and isinstance(part, Function) and part.picture and isinstance(called.results[0], Tensor):
        verdict.pictures.append(called.results[0])
    return [] if finding is None else [finding]


def _check_called(
    part: Function | Judged, called: Called, runs: Sequence[tuple[Any, ...]], seed: int, source: str
) -> Finding | None:
    if called.is_missing:
        return _not_defined(part)
    if not called.is_callable and (isinstance(part, Function) or part.arguments is not None):
        return Finding("not a function", f"{part.name} is {describe_value(called.results[0])}, not a function.")
    check: Callable[..., Finding | None] = _check_function if isinstance(part, Function) else _check_judged
    finding = check(part, called, runs, seed)
    return finding if finding is None or finding.line else replace(finding, line=only_line(source, part.name))


def _not_defined(part: Part) -> Finding:
    return Finding("not defined", f"It defines no {part.name}.")


def _check_function(part: Function, called: Called, runs: Sequence[tuple[Any, ...]], seed: int) -> Finding | None:
    if called.failed is not None:
        return _failing(part.wrong, called.failed, runs[len(called.results)])
    pairs = list(zip(runs, called.results, strict=True))
    for run, (arguments, seen) in enumerate(pairs):
        expected = call_own(part.right, arguments, seed + run)
        difference = first_difference(seen, expected, part.tolerance)
        if difference is None:
            continue
        example, call = difference.example, _call_text(part, arguments)
        if example is not None:
            example = replace(example, about=f"{call}: {example.about}")
        wrong = next((one for one in part.wrong if _explains(one, part, pairs, seed)), None)
        if wrong is not None:
            return Finding(wrong.name, wrong.says.format(*arguments), wrong.why, example=example, step="result")
        says = difference.says if example is not None else _with_call(difference.says, call)
        return Finding(difference.name, says, example=example, step="result")
    return None


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
        return _failing((), called.failed, runs[len(called.results)])
    for run, (arguments, seen) in enumerate(zip(runs, called.results, strict=True)):
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed + run)
                fault = part.judge(seen, *copy.deepcopy(arguments))
        except Exception as error:
            why = f"{type(error).__name__}: {str(error).rstrip('.')}"
            says = f"It returns {describe_value(seen)}, which cannot be judged: {why}."
            return Finding("returns nothing" if seen is None else "another kind of result", says)
        if fault is not None:
            return Finding(fault.name, fault.says, fault.why)
    return None


def _with_call(says: str, call: str) -> str:
    """What a result is, with the call that gave it."""
    if says.startswith("It returns"):
        return call + says.removeprefix("It")
    return f"{call}: {says[0].lower()}{says[1:]}"


def _call_text(part: Function, arguments: Sequence[Any]) -> str:
    """The call of an example: its arguments by name; long lists and tensors by their sizes.

    >>> part = Function("visible", lambda random: (), right=lambda x, lengths, S: x)
    >>> _call_text(part, [torch.zeros(2, 5), torch.tensor([5, 2]), 10])
    'visible(x = 2 × 5, lengths = [5, 2], S = 10)'
    """
    try:
        known = inspect.signature(part.right).parameters.values()
        names = [f"{one.name} = " for one in known if one.kind is one.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):  # of a function of torch, nobody knows the names
        names = []
    names = names[: len(arguments)] if len(names) >= len(arguments) else [""] * len(arguments)
    return f"{part.name}({', '.join(name + _short(one) for name, one in zip(names, arguments, strict=True))})"


def _short(value: Any) -> str:
    """An argument in a few characters.

    >>> _short(torch.tensor([0.25, -1.0])), _short(torch.zeros(7)), _short([1, [2, 3]]), _short("a" * 30)
    ('[0.25, −1]', 'tensor of 7', '[1, [2, 3]]', "'aaaaaaaaaaaaaaaaaaaa…'")
    """
    if isinstance(value, Tensor) and value.dim() != 1:
        return " × ".join(map(str, value.shape)) or _short(value.item())
    if isinstance(value, Tensor):
        return _short(value.tolist()) if len(value) <= MOST_SHOWN else f"tensor of {len(value)}"
    if isinstance(value, float):
        return f"{value:.3g}".replace("-", "−")
    if isinstance(value, (list, tuple)) and len(value) <= MOST_SHOWN:
        texts = ", ".join(map(_short, value))
        if len(texts) <= LONGEST_SHOWN:
            return f"[{texts}]" if isinstance(value, list) else f"({texts})"
    if isinstance(value, (list, tuple, dict)):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value if not isinstance(value, str) or len(value) <= 20 else value[:20] + "…")


def _check_layer(
    exercise: Exercise, part: Layer, submission: Submission, source: str, seed: int, verdict: AnswerVerdict
) -> list[Finding]:
    checked, printed = check_layer(exercise, part, submission, source, verdict.file, seed)
    verdict.printed = verdict.printed or printed
    if checked is None:
        return [_not_defined(part)]
    verdict.problem = checked.problem
    verdict.notes += checked.notes
    if checked.sizes and checked.mistakes:
        sizes = ", ".join(f"{name}={value}" for name, value in checked.sizes.items())
        verdict.notes.append(f"Checked as {checked.task}; built with {sizes}.")
    return checked.findings
