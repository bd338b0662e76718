"""A probe: a layer whose values are explained, and how its behaviours are tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from regard.school.check.compare.constructor_arguments import DROPOUT, ProbeSizes, choose_arguments
from regard.school.check.compare.experiment import Experiment
from regard.school.check.learner_code.protocol import DriverJob, Observation
from regard.school.check.learner_code.subject import Subject
from regard.school.check.request import Request

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Probe:
    """A layer whose values are explained: right, or wrong in a known way."""

    subject: Subject
    request: Request
    result: Experiment
    seen: Observation  # one run of it, with its torch calls
    masked: Experiment | None = None  # called with a mask, where it takes one

    def run(
        self, times: int = 1, tensors: Mapping[str, Tensor] | None = None, **changes: Unpack[DriverJob]
    ) -> Observation:
        """Call it so many times with the same input."""
        return self.result.run(self.subject, tensors, times, **changes)

    def with_dropout(self, times: int, train: bool = False) -> Observation:
        """The same with a dropout of 0.5."""
        built = self.result.built
        if built is not None:
            sizes = {name: value for name, value in built.items() if name not in DROPOUT and type(value) is int}
            chosen = choose_arguments(self.subject.described, self.result.sizes, 0.5, own=self.request.own)
            built = {**(chosen.arguments or {}), **sizes}
        return self.run(times, build=built, dropout=0.5, seeds=True, train=train)

    def outputs(self, seen: Observation, sizes: ProbeSizes | None = None) -> list[Tensor]:
        """The output of each call that did not fail."""
        sizes = sizes or self.result.sizes
        results = [self.result.call.outputs(run.outputs, sizes.B, sizes.T) for run in seen.runs if not run.failed]
        return [one[0] for one in results if one]
