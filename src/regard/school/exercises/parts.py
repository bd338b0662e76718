"""The parts of an exercise: a function, a layer, a question, or an answer that a judge looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.mistakes.mistake import Mistake

Arguments = Callable[[torch.Generator], Sequence[Any]]


@dataclass(frozen=True)
class Wrong:
    """A wrong answer that has a name: a function that gives the same result, or a part of the message it fails with.

    says: what the learner's function does and what it should do; {0}, {1} … are its arguments, numbers or texts.
    """

    name: str
    says: str
    act: Callable[..., Any] | None = None
    why: str = ""
    raises: str = ""


@dataclass(frozen=True)
class Function:
    """A function that the learner writes. It is called with fresh arguments, and compared with `right`.

    picture: "weights" where the result is a (T, S) tensor of weights, to be drawn after success.
    """

    name: str
    arguments: Arguments
    right: Callable[..., Any]
    wrong: Sequence[Wrong] = ()
    tolerance: float | int = 1e-5  # of the largest number of a tensor
    runs: int = 3
    picture: str = ""


@dataclass(frozen=True)
class Layer:
    """A layer or function of attention, checked as `regard check` does it.

    causal, arguments and weights are those of `regard.check`; mistakes are more than those that it knows.
    """

    name: str
    causal: bool | None = None
    arguments: Mapping[str, Any] | None = None
    weights: Mapping[str, str] | None = None
    mistakes: Sequence[Mistake] = ()


@dataclass(frozen=True)
class Question:
    """A value at top level of the learner's file, `answer_1 = "b"`. because: why each wrong choice is wrong."""

    name: str
    right: Any
    because: Mapping[Any, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """What a judge finds wrong with an answer."""

    name: str
    says: str
    why: str = ""


@dataclass(frozen=True)
class Judged:
    """A function with many right answers. judge(result, *arguments) returns None for a right one, else a Fault.

    Without arguments, the name may be that of a value, too.
    """

    name: str
    arguments: Arguments | None
    judge: Callable[..., Fault | None]
    runs: int = 1


Part = Function | Layer | Question | Judged
