"""Comparing: what a learner's function returned, or a choice, beside what is right; the first place that differs."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.school.check.verdict import Example, Finding
from regard.school.exercises.exercise import Question
from regard.school.exercises.plain_calls import Opaque

MOST_ROWS, MOST_COLUMNS = 3, 6  # of an example
NUMBERS = (bool, int, float, Tensor)


def is_same(seen: Any, expected: Any, tolerance: float | int) -> bool:
    return first_difference(seen, expected, tolerance) is None


def first_difference(seen: Any, expected: Any, tolerance: float | int, about: str = "") -> Finding | None:
    """The first difference: of kind, then of shape, then of numbers, which has no name. None where there is none.

    A list is as good as a tuple, a number as good as a tensor that holds one, and dtypes do not matter.
    """
    if isinstance(seen, NUMBERS) and isinstance(expected, NUMBERS):
        return _compare_tensors(seen, expected, tolerance, about)
    if (pairs := _pairs(seen, expected)) is None:
        is_equal = (isinstance(seen, str) and seen == expected) or (seen is None and expected is None)
        says = _said(about, describe_value(seen), describe_value(expected))
        if seen is None and not is_equal:
            return Finding("returns nothing", f"{says} Is there a return?")
        is_text = isinstance(seen, str) and isinstance(expected, str)
        return None if is_equal else Finding("" if is_text else "another kind of result", says)
    differences = (first_difference(a, b, tolerance, _inside(where, about)) for where, a, b in pairs)
    return next((one for one in differences if one is not None), None)


def _inside(where: str, about: str) -> str:
    """A part of a part: "part 1 of part 0 of the result"."""
    return f"{where.removesuffix('the result')}{about}" if about else where


def _pairs(seen: Any, expected: Any) -> list[tuple[str, Any, Any]] | None:
    """What two lists, or two dicts, hold in the same places, each with its place; None where they do not match."""
    if isinstance(expected, (list, tuple)) and isinstance(seen, (list, tuple)) and len(seen) == len(expected):
        return [(f"part {i} of the result", a, b) for i, (a, b) in enumerate(zip(seen, expected, strict=True))]
    if isinstance(expected, dict) and isinstance(seen, dict) and seen.keys() == expected.keys():
        return [(f"{key!r} of the result", seen[key], expected[key]) for key in expected]
    return None


def describe_value(value: Any) -> str:
    """A value in a few words.

    >>> describe_value(torch.zeros(2, 3)), describe_value(None), describe_value([1, 2])
    ('a tensor of shape (2, 3)', 'None', 'a list of 2')
    """
    if isinstance(value, Tensor):
        number = "" if value.dim() else f"with the number {value.item():.6g}"
        return f"a tensor {number or f'of shape {tuple(value.shape)}'}"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (int, float)):
        return f"the number {value:.6g}" if isinstance(value, float) else f"the number {value}"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:60] + "…")
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return f"a dict with {', '.join(map(repr, list(value)[:5]))}{' …' * (len(value) > 5)}"
    kind = value.kind if isinstance(value, Opaque) else type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def _compare_tensors(seen: Any, expected: Any, tolerance: float | int, about: str) -> Finding | None:
    a, b = torch.as_tensor(seen), torch.as_tensor(expected)
    if a.shape != b.shape:
        return Finding("wrong shape", _said(about, describe_value(seen), describe_value(expected)))
    differs = differing(a, b, tolerance)
    if not bool(differs.any()):
        return None
    if not b.dim():
        return Finding("", _said(about, _number(seen), _number(expected)))
    subject = f"{about[0].upper()}{about[1:]}" if about else "Its result"
    return Finding("", f"{subject} differs.", example=_example(a, b, differs, about or "the result"))


def _said(about: str, seen: str, expected: str) -> str:
    subject = f"{about[0].upper()}{about[1:]} is" if about else "It returns"
    return f"{subject} {seen}; expected {expected}."


def _number(value: Any) -> str:
    value = value.item() if isinstance(value, Tensor) else value
    text = f"{value + 0.0:.6g}" if isinstance(value, float) else str(value)  # + 0.0: no negative zero
    return text.replace("-", "−")


def differing(seen: Tensor, expected: Tensor, tolerance: float | int) -> Tensor:
    """Where two tensors of one shape differ by more than the tolerance times the largest number; bool."""
    dtype = torch.complex128 if seen.is_complex() or expected.is_complex() else torch.float64
    a, b = seen.to(dtype), expected.to(dtype)
    finite = b.isfinite()
    numbers = b[finite].abs()
    largest = float(numbers.max()) if len(numbers) else 0.0
    close = (a - b).abs() <= tolerance * (largest or 1.0)
    alike = (a == b) | (a.isnan() & b.isnan())
    return ~torch.where(finite, close, alike)


def _example(seen: Tensor, expected: Tensor, differs: Tensor, about: str) -> Example:
    """Some rows and columns, among them the first that differs; of a batch, those of one matrix."""
    rows, columns = expected.shape[-2:] if expected.dim() > 1 else (1, expected.shape[-1])
    matrix, place = divmod(int(differs.reshape(-1).to(torch.int8).argmax()), rows * columns)
    row, column = divmod(place, columns)
    top = 0 if rows <= MOST_ROWS else min(max(row - 1, 0), rows - MOST_ROWS)
    left = 0 if column < MOST_COLUMNS else min(column - 1, columns - MOST_COLUMNS)

    def cut(t: Tensor) -> Tensor:
        table = (t.real if t.is_complex() else t).reshape(-1, rows, columns)[matrix]
        return table[top : top + MOST_ROWS, left : left + MOST_COLUMNS].to(torch.float64)

    index = [int(one) for one in torch.unravel_index(torch.tensor(matrix), expected.shape[:-2])]
    where = [f"at {index}"] * bool(index)
    where += [f"row {top} to {top + MOST_ROWS - 1} of {rows}"] * (rows > MOST_ROWS)
    where += [f"column {left} to {left + MOST_COLUMNS - 1} of {columns}"] * (columns > MOST_COLUMNS)
    return Example(", ".join([about, *where]), cut(seen), cut(expected))


def answer_finding(question: Question, results: Sequence[Any]) -> list[Finding]:
    """What is wrong with the answer to a question; the right choice is not told."""
    value = results[0]
    given = plain_choice(value)
    if given == plain_choice(question.right):
        return []
    for choice, reason in question.because.items():
        if given == plain_choice(choice):
            return [Finding(f"{question.name}: {choice}", reason)]
    choices, remedy = sorted({str(one) for one in (question.right, *question.because)}), "that is not it"
    if len(choices) > 1 and all(len(one) == 1 and one.isalpha() for one in choices):
        *most, last = (f'"{one}"' for one in choices)
        remedy = f"answer with the letter {', '.join(most)} or {last}, in quotes"
    return [Finding(f"{question.name}: another answer", f"{question.name} is {describe_value(value)}; {remedy}.")]


def quotes_missing(questions: Sequence[Question], failure: str) -> str:
    """A remedy where a file fails because a choice was written without its quotes, `answer = b`; else ""."""
    for one in questions:
        for choice in (one.right, *one.because):
            if isinstance(choice, str) and f"name {choice!r} is not defined" in failure:
                return f'A choice stands in quotes: "{choice}".'
    return ""


def plain_choice(value: Any) -> str:
    """A choice as a text that can be compared: 3, 3.0 and "3" are one, and so are (2, 3), [2, 3] and "(2, 3)".

    >>> plain_choice("(2,  3)") == plain_choice([2, 3.0]), plain_choice(" B "), plain_choice("b)")
    (True, 'b', 'b')
    """
    if isinstance(value, str):
        value = re.sub(r"^\s*\(?([A-Za-z])[).]\s*$", r"\1", value)  # "b)" is the letter b
        try:
            parsed = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            parsed = value
        return " ".join(parsed.split()).lower() if isinstance(parsed, str) else plain_choice(parsed)
    if isinstance(value, Tensor):
        return plain_choice(value.tolist())
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(plain_choice, value))})"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:.10g}"
    return str(value).lower()
