"""What is said beside the code that is checked, and how the person who asked spells what a check must be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regard.mistakes.mistake import Mistake
from regard.school.check.compare.constructor_arguments import PROBES, ProbeSizes
from regard.school.check.learner_code.protocol import Failure


class RemedySpelling(NamedTuple):
    """How a value for an argument, and which weight is which, are given to a check."""

    argument: str  # % its name
    weights: str


FLAGS = RemedySpelling("--set %s=…", "--names W_query=…,W_key=…,W_value=…,out_proj=…")
IN_PYTHON = RemedySpelling("arguments={'%s': …}", "names={'W_query': …, 'W_key': …, 'W_value': …, 'out_proj': …}")
IN_KEY = RemedySpelling(
    "%s = … under [arguments] in the key",
    "W_query = …, W_key = …, W_value = …, out_proj = … under [weights] in the key",
)


@dataclass(frozen=True)
class Request:
    """What is said beside the code: arguments, names of weights, and whether it should hide the future.

    A teacher can choose other sizes and weights than everybody knows: `probes`, `seed`.
    """

    causal: bool | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    probes: tuple[ProbeSizes, ...] = PROBES  # the first at which the layer can be built
    seed: int = 0  # added to that of every experiment
    mistakes: tuple[Mistake, ...] = ()  # a teacher's own, which are tried before the known ones
    plain: bool = False  # nothing but the formula: no residual inside, and dropout on the weights only
    spelling: RemedySpelling = FLAGS

    def ask_for_value(self, name: str) -> str:
        """Nothing is known of an argument of a function."""
        return f"nothing is known of its argument {name}; give a value: {self.spelling.argument % name}"

    def ask_for_arguments(self, names: Sequence[str]) -> str:
        """Why a class could not be built, and how to give what is missing."""
        ask = f"give a value: {self.spelling.argument % names[0]}"
        return f"its constructor takes {', '.join(names)}, and nothing is known of that; {ask}"

    def ask_for_others(self, failed: Failure, names: Sequence[str]) -> str:
        """Why a class or its forward refused everything that was tried, and how to give something else."""
        says = f"{failed.type}: {failed.message}".strip().splitlines()[0].rstrip(": ")
        where = f" (line {failed.line})" if failed.line else ""
        if failed.type == "NotImplementedError" and failed.line:  # raised by a line of the learner's
            return f"it is not written yet: line {failed.line} raises NotImplementedError"
        ask = f"; give another value: {self.spelling.argument % names[0]}" if names else ""
        return f"it refuses everything that was tried: {says}{where}{ask}"
