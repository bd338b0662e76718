"""The registry: what a layer promises, each promise tried by one function with a label.

A behaviour yields what it finds wrong. It raises NotOffered where the layer has no such thing, and NotChecked where it
has, but could not be tried: a verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.exceptions import WHATEVER_IS_PASSED, explain_crash
from regard.school.check.learner_code.protocol import Failure
from regard.school.check.verdict import Finding

Observe = Callable[[Experiment], Iterator[Finding]]


class NotOffered(Exception):
    """The layer has no such thing, and promises nothing."""


class NotChecked(Exception):
    """It could not be tried; the message says why. failures: of the learner's code, in every call that was tried."""

    def __init__(self, says: str, failures: Sequence[Failure | None] = ()) -> None:
        super().__init__(says)
        self.failures = failures

    def explained(self, result: Experiment) -> Finding | None:
        """The mistake behind it, where no argument can be the reason: a name that is not there, or a device."""
        first = self.failures[0] if self.failures else None
        if first is None or any(
            one is None or (one.type, one.line) != (first.type, first.line) for one in self.failures
        ):
            return None
        finding = explain_crash(replace(result, failed=first))
        return finding if finding.name in WHATEVER_IS_PASSED else None


@dataclass(frozen=True)
class Behaviour:
    """One thing that is tried, and what a verdict calls it."""

    label: str
    observe: Observe
    of_functions: bool  # is it also tried of a function?


@dataclass
class Observed:
    """What was found wrong, and the labels of what was tried and of what could not be, with the reason."""

    findings: list[Finding]
    checked: list[str]
    not_checked: list[str]

    def add(self, one: Behaviour, result: Experiment) -> None:
        """Try one behaviour."""
        try:
            for finding in one.observe(result):
                self.findings.append(finding)
        except NotOffered:
            return
        except NotChecked as reason:
            if explained := reason.explained(result):
                self.findings.append(explained)
            else:
                self.not_checked.append(f"{one.label}: {reason}")
            return
        if one.label not in self.checked:
            self.checked.append(one.label)


def behaviour(label: str, of_functions: bool = False) -> Callable[[Observe], Behaviour]:
    """Make a behaviour of a function that tries one thing.

    >>> @behaviour("nothing")
    ... def nothing(result):
    ...     yield from ()
    >>> nothing.label
    'nothing'
    """
    return lambda observe: Behaviour(label, observe, of_functions)
