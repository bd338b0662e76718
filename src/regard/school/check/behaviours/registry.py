"""The registry: what a layer promises, each promise tried by one function with a label.

A behaviour yields what it finds wrong. It raises NotOffered where the layer has no such thing, and NotChecked where it
has, but could not be tried: a verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from regard.school.check.compare.experiment import Experiment
from regard.school.check.verdict import Finding

Observe = Callable[[Experiment], Iterator[Finding]]


class NotOffered(Exception):
    """The layer has no such thing, and promises nothing."""


class NotChecked(Exception):
    """It could not be tried; the message says why."""


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
