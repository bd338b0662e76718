"""Questions: the learner's choice beside the right one, however it is written."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from regard.school.check.verdict import Finding
from regard.school.exercises.comparing import describe_value
from regard.school.exercises.parts import Question


def answer_finding(question: Question, results: Sequence[Any]) -> list[Finding]:
    """What is wrong with an answer; the right choice is not told."""
    value = results[0]
    given = plain_choice(value)
    if given == plain_choice(question.right):
        return []
    for choice, reason in question.because.items():
        if given == plain_choice(choice):
            return [Finding(f"{question.name}: {choice}", reason)]
    remedy = f"answer with {letters}" if (letters := _letters(question)) else "that is not it"
    return [Finding(f"{question.name}: another answer", f"{question.name} is {describe_value(value)}; {remedy}.")]


def quotes_missing(questions: Sequence[Question], failure: str) -> str:
    """A remedy where a file fails because a choice was written without its quotes, `answer = b`; else ""."""
    for one in questions:
        for choice in (one.right, *one.because):
            if isinstance(choice, str) and f"name {choice!r} is not defined" in failure:
                return f'A choice stands in quotes: "{choice}".'
    return ""


def _letters(question: Question) -> str:
    """The choices, where each is a letter: 'the letter "a", "b" or "c", in quotes'; else ""."""
    choices = sorted({str(one) for one in (question.right, *question.because)})
    if len(choices) < 2 or not all(len(one) == 1 and one.isalpha() for one in choices):
        return ""
    *most, last = (f'"{one}"' for one in choices)
    return f"the letter {', '.join(most)} or {last}, in quotes"


def plain_choice(value: Any) -> str:
    """A choice as a text that can be compared: 3, 3.0 and "3" are one, and so are (2, 3), [2, 3] and "(2, 3)".

    >>> plain_choice("(2,  3)") == plain_choice([2, 3.0]), plain_choice(" B ")
    (True, 'b')
    """
    if isinstance(value, str):
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
