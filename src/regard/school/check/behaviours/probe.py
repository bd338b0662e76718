"""A situation: a layer whose values are explained, and how its behaviours are tried."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.school.check.compare.constructor_arguments import DROPOUT, ProbeSizes, choose_arguments
from regard.school.check.compare.experiment import Experiment, Request
from regard.school.check.learner_code.subject import Observation, Subject
from regard.school.check.learner_code.text_hints import LONGEST_LINE


@dataclass
class Situation:
    """A layer whose values are explained: right, or wrong in a known way."""

    subject: Subject
    result: Experiment
    request: Request
    masked: Experiment | None = None  # called with a mask, where it takes one

    @property
    def is_right(self) -> bool:
        """Are its values right?"""
        return self.result.is_right

    def run(self, number: int = 1, tensors: dict[str, Tensor] | None = None, **changes: Any) -> Observation:
        """Call it so many times with the same input."""
        assert self.result.call is not None
        calls = [self.result.call.as_json()] * number
        return self.subject.run(self.result.job(calls=calls, **changes), {**self.result.tensors, **(tensors or {})})

    def with_dropout(self, number: int, **changes: Any) -> Observation:
        """The same with a dropout of 0.5."""
        built = self.result.built
        if built is not None:
            built = choose_arguments(self.subject.described, self.result.sizes, 0.5, own=self.request.own).arguments
            built = {
                **built,
                **{n: v for n, v in (self.result.built or {}).items() if n not in DROPOUT and type(v) is int},
            }
        return self.run(number, build=built, dropout=0.5, seeds=True, **changes)

    def outputs(self, seen: Observation, sizes: ProbeSizes | None = None) -> list[Tensor]:
        """The output of each call that did not fail."""
        sizes = sizes or self.result.sizes
        assert self.result.call is not None
        results = [self.result.call.outputs(run.outputs, sizes.B, sizes.T) for run in seen.runs if not run.failed]
        return [one[0] for one in results if one]

    def record(self) -> Observation:
        """The torch calls of one run."""
        return self.run(1, record=True)


def line_with(source: str, pattern: str) -> int:
    """The first line that holds the pattern, 0 where none does."""
    lines = enumerate(source.splitlines(), 1)
    return next((i for i, line in lines if len(line) <= LONGEST_LINE and re.search(pattern, line)), 0)
