"""An answer to an exercise: the learner's file, checked part by part; the first part that is wrong is reported.

The learner's code runs in a process of its own and returns values. What is right or wrong and the judges stay here.
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.school.check.learner_code.protocol import Failure
from regard.school.check.learner_code.submission import Submission, SubmissionStopped, does_not_run
from regard.school.check.verdict import Finding, Verdict, with_code
from regard.school.exercises.answer_text import (
    before_running,
    imports_regard,
    not_to_be_used,
    only_line,
    values_written,
)
from regard.school.exercises.calling import Called, arguments_of, call_learner, call_own, call_seeded, check_layer
from regard.school.exercises.comparing import answer_finding, describe_value, first_difference, is_same, quotes_missing
from regard.school.exercises.exercise import Exercise, Function, Judged, Layer, Part, Picture, Question, Wrong
from regard.school.exercises.relations import find_relation
from regard.school.exercises.torch_errors import explain_error
from regard.school.sandbox.worker import Worker

NOT_UTF8 = "it is not UTF-8 text; save it as UTF-8, which editors offer as the file's encoding"
SECONDS = 20.0  # for all parts together
ROUGH = 0.05  # of the largest number: a result that is right but for its dtype
MOST_SHOWN, LONGEST_SHOWN = 6, 60  # numbers of a list or tensor that is shown as an argument, and characters
IN_PLACE = "in-place change of an argument"
WHY_IN_PLACE = (
    "x += y and x[i] = y write into the tensor, list or dict that was passed, which whoever calls may still need; "
    "x = x + y makes a new one, and so does x.clone()."
)
Runs = Sequence[tuple[tuple[Any, ...], Any]]  # arguments, and what the learner's function returned


@dataclass(frozen=True)
class DrawnPicture:
    """What the learner's code made of the words of a Picture."""

    says: str
    weights: Tensor  # (H, T, S)
    queries: Sequence[str]
    keys: Sequence[str]


@dataclass
class AnswerVerdict(Verdict):
    """The verdict on an answer; with what the learner's code printed, and results to be drawn after success."""

    printed: str = ""
    pictures: list[Tensor] = field(default_factory=list)
    drawn: DrawnPicture | None = None  # of the exercise's own picture

    def as_json(self) -> dict[str, Any]:
        """Everything but the pictures, in plain values."""
        values = Verdict.as_json(replace(self, pictures=[], drawn=None))
        return {name: value for name, value in values.items() if name not in ("pictures", "drawn")}


def check_answer(
    exercise: Exercise,
    worker: Worker,
    path: Path | str,
    seed: int | None = None,
    seconds: float | int = SECONDS,
    folder: Path | None = None,
) -> AnswerVerdict:
    """Check a learner's file. Every check has a fresh seed, unless one is given.

    folder: has a copy of the file, of the same name, which runs in its place and may import what is beside it.

    Its findings have the name of a wrong answer of the exercise, or one of: not written yet, does not run, not defined,
    not a function, fails, out of memory, returns nothing, wrong shape, another kind of result; "" where it is wrong in
    another way.
    """
    path = Path(path)
    nothing = AnswerVerdict(path.name, exercise.title, file=str(path))
    try:
        source = path.read_text(encoding="utf-8-sig")  # with or without a byte-order mark
        if "\0" in source:
            nothing.problem = NOT_UTF8
            return nothing
        submission = Submission(folder or path, worker, seconds, path.name if folder else None)
        return check_source(exercise, submission, source, str(path), seed)
    except UnicodeDecodeError:
        nothing.problem = NOT_UTF8
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
    findings = before_running(source) or not_to_be_used(source, exercise.without)
    if findings and findings[0].name == "not written yet":
        findings = _wrong_choices(exercise, submission, source, seed, verdict) or findings
    if findings:
        verdict.name = Path(file).name
    for part in () if findings else exercise.parts:
        verdict.name = exercise.name if isinstance(part, Question) else part.name
        findings = _checked(exercise, part, submission, source, seed, verdict)
        if any(not one.is_warning for one in findings) or verdict.problem:
            break
        verdict.name = exercise.name
    verdict.findings = with_code(findings, source)
    if verdict.is_right:
        _add_after_success(exercise, submission, source, seed, verdict)
    return verdict


def _add_after_success(
    exercise: Exercise, submission: Submission, source: str, seed: int, verdict: AnswerVerdict
) -> None:
    """The picture of a right answer, and a word where it is not the learner's own."""
    if exercise.picture is not None:
        verdict.drawn = _drawn(exercise.picture, submission, seed)
    if imports_regard(source) and not imports_regard(_solution(exercise)):
        verdict.notes.append("It imports regard, where all of this is ready. It counts; but write it once yourself.")


def _drawn(picture: Picture, submission: Submission, seed: int) -> DrawnPicture | None:
    """The picture; None where the learner's code, though right, cannot be called for it."""
    try:
        module = (picture.build, picture.state) if picture.state else None
        called = call_learner(picture.name, picture.calls, submission, seed, module=module)
        weights = picture.weights(called.results)
        weights = weights if weights.dim() == 3 else weights[None]
    except (SubmissionStopped, RuntimeError, ValueError, TypeError, IndexError, AttributeError):
        return None
    if weights.shape[1:] != (len(picture.queries), len(picture.keys)):
        return None
    return DrawnPicture(picture.says, weights, picture.queries, picture.keys)


def _wrong_choices(
    exercise: Exercise, submission: Submission, source: str, seed: int, verdict: AnswerVerdict
) -> list[Finding]:
    """The first wrong one of the questions that are answered, while other parts are not written yet."""
    written = values_written(source)
    for part in exercise.parts:
        if isinstance(part, Question) and part.name in written:
            try:
                if findings := _checked(exercise, part, submission, source, seed, verdict):
                    return findings
            except SubmissionStopped:  # what is not written yet does not run
                return []
    return []


def _solution(exercise: Exercise) -> str:
    path = exercise.path and exercise.path.parent / "solution.py"
    return path.read_text(encoding="utf-8") if path and path.is_file() else "import regard"


def _checked(
    exercise: Exercise, part: Part, submission: Submission, source: str, seed: int, verdict: AnswerVerdict
) -> list[Finding]:
    missing = [Finding("not defined", f"It defines no {part.name}.")]
    if isinstance(part, Layer):
        checked, printed = check_layer(exercise, part, submission, source, verdict.file, seed)
        verdict.printed = verdict.printed or printed
        return missing if checked is None else _adopted(checked, verdict)
    if isinstance(part, Question):
        called = call_learner(part.name, [()], submission, seed, read=True)
    else:
        runs = [arguments_of(part, seed + run) for run in range(part.runs)]
        called = call_learner(part.name, runs, submission, seed, through=part.through)
    verdict.printed = verdict.printed or called.printed
    if called.is_missing:
        return missing
    if isinstance(part, Question):
        return answer_finding(part, called.results)
    return _of_function(part, called, runs, source, seed, verdict)


def _of_function(
    part: Function | Judged,
    called: Called,
    runs: Sequence[tuple[Any, ...]],
    source: str,
    seed: int,
    verdict: AnswerVerdict,
) -> list[Finding]:
    """What is wrong with a function that was called; a picture of what is right is added to the verdict."""
    if not called.is_callable and (isinstance(part, Function) or part.arguments is not None):
        return [Finding("not a function", f"{part.name} is {describe_value(called.results[0])}, not a function.")]
    if (finding := _of_calls(part, called, runs, seed)) is not None:
        return [replace(finding, line=finding.line or only_line(source, part.name))]
    if isinstance(part, Function) and part.picture and isinstance(called.results[0], Tensor):
        verdict.pictures.append(called.results[0])
    return []


def _of_calls(part: Function | Judged, called: Called, runs: Sequence[tuple[Any, ...]], seed: int) -> Finding | None:
    """What is wrong with the results of a function, or why it gave none."""
    if called.failed is not None:
        return _failing(part, called.failed, runs[len(called.results)])
    check: Callable[..., Finding | None] = _check_function if isinstance(part, Function) else _check_judged
    finding = check(part, list(zip(runs, called.results, strict=True)), seed)
    return finding if finding is not None and finding.name else _changed_argument(part, runs, called.after) or finding


def _changed_argument(part: Function | Judged, runs: Sequence[tuple[Any, ...]], after: Sequence[Any]) -> Finding | None:
    """An argument in which the call left other values; `through` may hand over what is to be changed."""
    names = _argument_names(part) if isinstance(part, Function) else []
    pairs = [one for before, left in zip(runs, after, strict=True) for one in enumerate(zip(before, left, strict=True))]
    changed = next((i for i, (before, left) in pairs if not is_same(left, before, 0)), None)
    if changed is None or part.through is not None:
        return None
    which = names[changed] if changed < len(names) else f"argument {changed}"
    return Finding(IN_PLACE, f"After the call, {which} holds other values than before it.", WHY_IN_PLACE)


def _adopted(checked: Verdict, verdict: AnswerVerdict) -> list[Finding]:
    """What is wrong with a layer; what else was found is added to the verdict on the answer."""
    verdict.problem = checked.problem
    verdict.notes += checked.notes
    if checked.sizes and checked.mistakes:
        sizes = ", ".join(f"{name}={value}" for name, value in checked.sizes.items())
        verdict.notes.append(f"Checked as {checked.task}; built with {sizes}.")
    return checked.findings


def _failing(part: Function | Judged, failed: Failure, arguments: Sequence[Any]) -> Finding:
    message = f"{failed.type}: {failed.message.strip()}"
    for one in part.wrong:
        if one.raises and one.raises in message:
            return Finding(one.name, one.says.format(*arguments), one.why, line=failed.line)
    if failed.type == "MemoryError" or "DefaultCPUAllocator" in message:
        return Finding("out of memory", "It needs more memory than it may have.", line=failed.line)
    first = message.split("\n")[0].rstrip(":. ")
    name, means = explain_error(message)
    return Finding(name, f"It fails: {first}.", means, line=failed.line)


def _check_function(part: Function, runs: Runs, seed: int) -> Finding | None:
    for run, (arguments, seen) in enumerate(runs):
        right = call_own(part.right, arguments, seed + run, part.through)
        difference = first_difference(seen, right, part.tolerance)
        if part.same_dtype and (finding := _other_dtype(seen, right, _call_text(part, arguments))):
            return finding
        if difference is None:
            continue
        call, says, example = _call_text(part, arguments), difference.says, difference.example
        if example is not None:
            example = replace(example, about=f"{call}: {example.about}")
        for one in part.wrong:
            if _explains(one, part, runs, seed):
                return Finding(one.name, one.says.format(*arguments), one.why, example=example, step="result")
        if example is None and says.startswith("It returns"):
            says = call + says.removeprefix("It")
        elif example is None:
            says = f"{call}: {says[0].lower()}{says[1:]}"
        difference = replace(difference, says=says, example=example, step="result")
        if related := _relation(part, runs, seed):
            says = related.says if example is not None else f"{says} {related.says}"
            return replace(difference, name=related.name, says=says)
        return difference
    return None


def _relation(part: Function, runs: Runs, seed: int) -> Finding | None:
    """How the results belong to the right ones, as far as the two alone tell."""
    rights = [call_own(part.right, arguments, seed + run, part.through) for run, (arguments, _) in enumerate(runs)]
    both = [(arguments, seen, right) for (arguments, seen), right in zip(runs, rights, strict=True)]
    return find_relation(both, _argument_names(part), part.tolerance)


def _explains(wrong: Wrong, part: Function, runs: Runs, seed: int) -> bool:
    """Does this wrong answer give the same result in every run?"""
    try:
        act = wrong.act
        acted = [call_own(act, one, seed + run, part.through) for run, (one, _) in enumerate(runs)] if act else []
    except Exception:  # it cannot be made with these arguments
        return False
    return bool(acted) and all(is_same(seen, a, part.tolerance) for (_, seen), a in zip(runs, acted, strict=True))


def _check_judged(part: Judged, runs: Runs, seed: int) -> Finding | None:
    for run, (arguments, seen) in enumerate(runs):
        try:
            fault = call_seeded(part.judge, (seen, *arguments), seed + run)
        except Exception as error:
            why = f"{type(error).__name__}: {str(error).rstrip('.')}"
            says = f"It returns {describe_value(seen)}, which cannot be judged: {why}."
            return Finding("returns nothing" if seen is None else "another kind of result", says)
        if fault is not None:
            return Finding(fault.name, fault.says, fault.why)
    return None


def _call_text(part: Function, arguments: Sequence[Any]) -> str:
    """The call of an example: its arguments by name; long lists and tensors by their sizes.

    >>> import torch
    >>> part = Function("visible", lambda random: (), right=lambda x, lengths, S: x)
    >>> _call_text(part, [torch.zeros(2, 5), torch.tensor([5, 2]), 10])
    'visible(x = 2 × 5, lengths = [5, 2], S = 10)'
    """
    names = [f"{one} = " for one in _argument_names(part)]
    names = names[: len(arguments)] if len(names) >= len(arguments) else [""] * len(arguments)
    return f"{part.name}({', '.join(name + _short(one) for name, one in zip(names, arguments, strict=True))})"


def _argument_names(part: Function) -> list[str]:
    """What the arguments are called; none where `through` calls the function with others, or nobody knows."""
    if part.through is not None:
        return []
    try:
        known = inspect.signature(part.right).parameters.values()
    except (TypeError, ValueError):  # of a function of torch, nobody knows the names
        return []
    return [one.name for one in known if one.kind is one.POSITIONAL_OR_KEYWORD]


def _other_dtype(seen: Any, right: Any, call: str) -> Finding | None:
    """What is wrong with nearly the right numbers in another dtype, or with digits that one has lost."""
    if not isinstance(seen, Tensor) or seen.dtype is right.dtype or not is_same(seen, right, ROUGH):
        return None
    names = [str(one.dtype).removeprefix("torch.") for one in (seen, right)]
    says = f"{call} is in {names[0]}; expected {names[1]}, as the argument is."
    return Finding("another dtype", says, "The next product, with tensors of the old dtype, fails.")


def _short(value: Any) -> str:
    """An argument in a few characters.

    >>> import torch
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
