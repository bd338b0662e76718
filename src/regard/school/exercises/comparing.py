"""Comparing: what a learner's function returned beside what is right, and the first place where they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.school.check.verdict import Example
from regard.school.exercises.plain_calls import Opaque

MOST_ROWS, MOST_COLUMNS = 3, 6  # of an example


@dataclass(frozen=True)
class ValueDifference:
    """The first difference between two values."""

    name: str  # "" where the numbers differ and nothing else
    says: str
    example: Example | None = None


def is_same(seen: Any, expected: Any, tolerance: float | int) -> bool:
    """Are both the same, numbers up to the tolerance?"""
    return first_difference(seen, expected, tolerance) is None


def first_difference(seen: Any, expected: Any, tolerance: float | int, about: str = "") -> ValueDifference | None:
    """The first difference: of kind, then of shape, then of numbers. None where there is none.

    A list is as good as a tuple, a number as good as a tensor that holds one, and dtypes do not matter.
    """
    if _is_number(seen) and _is_number(expected):
        return _compare_tensors(seen, expected, tolerance, about)
    if (pairs := _pairs(seen, expected)) is None:
        is_equal = (isinstance(seen, str) and seen == expected) or (seen is None and expected is None)
        return None if is_equal else _other_kind(seen, expected, about)
    differences = (first_difference(a, b, tolerance, f"{where} {about}".strip()) for where, a, b in pairs)
    return next((one for one in differences if one is not None), None)


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
        return (
            f"a tensor of shape {tuple(value.shape)}" if value.dim() else f"a tensor with the number {value.item():.6g}"
        )
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


def _other_kind(seen: Any, expected: Any, about: str) -> ValueDifference:
    says = _said(about, describe_value(seen), describe_value(expected))
    if seen is None:
        return ValueDifference("returns nothing", f"{says} Is there a return?")
    if isinstance(seen, str) and isinstance(expected, str):
        return ValueDifference("", says)
    return ValueDifference("another kind of result", says)


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, Tensor))


def _compare_tensors(seen: Any, expected: Any, tolerance: float | int, about: str) -> ValueDifference | None:
    a, b = torch.as_tensor(seen), torch.as_tensor(expected)
    if a.shape != b.shape:
        return ValueDifference("wrong shape", _said(about, describe_value(seen), describe_value(expected)))
    differs = differing(a, b, tolerance)
    if not bool(differs.any()):
        return None
    if not b.dim():
        return ValueDifference("", _said(about, _number(seen), _number(expected)))
    subject = _capital(about) if about else "Its result"
    return ValueDifference("", f"{subject} differs.", _example(a, b, differs, about or "the result"))


def _said(about: str, seen: str, expected: str) -> str:
    return f"{f'{_capital(about)} is' if about else 'It returns'} {seen}; expected {expected}."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _number(value: Any) -> str:
    value = value.item() if isinstance(value, Tensor) else value
    text = f"{value + 0.0:.6g}" if isinstance(value, float) else str(value)  # + 0.0: no negative zero
    return text.replace("-", "−")


def differing(seen: Tensor, expected: Tensor, tolerance: float | int) -> Tensor:
    """Where two tensors of one shape differ by more than the tolerance times the largest number; bool.

    >>> differing(torch.tensor([1.0, 2.1, -torch.inf]), torch.tensor([1.0, 2.0, -torch.inf]), 1e-5)
    tensor([False,  True, False])
    """
    if seen.is_complex() or expected.is_complex():
        a, b = seen.to(torch.complex128), expected.to(torch.complex128)
    else:
        a, b = seen.to(torch.float64), expected.to(torch.float64)
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
    cut = [
        (t.real if t.is_complex() else t).reshape(-1, rows, columns)[matrix][
            top : top + MOST_ROWS, left : left + MOST_COLUMNS
        ]
        for t in (seen, expected)
    ]
    batch = torch.zeros(expected.shape[:-2])
    index = [int(one) for one in torch.unravel_index(torch.tensor(matrix), batch.shape)]
    where = [f"at {index}"] * bool(index)
    where += [f"row {top} to {top + MOST_ROWS - 1} of {rows}"] * (rows > MOST_ROWS)
    where += [f"column {left} to {left + MOST_COLUMNS - 1} of {columns}"] * (columns > MOST_COLUMNS)
    return Example(", ".join([about, *where]), cut[0].to(torch.float64), cut[1].to(torch.float64))
