"""The verdict on a layer: right, or the mistakes that were found, each with what was seen and where."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import Tensor

from regard.mistakes.formula import Case
from regard.mistakes.mistake import Mistake
from regard.school.sandbox.source_text import cell_and_line, with_cells
from regard.support.drawing import as_text


@dataclass(frozen=True)
class Example:
    """A step on a small example: what the learner's code makes, and what is right. Both (rows, columns)."""

    about: str  # where it is: "weights of head 0, one row per token"
    seen: Tensor
    expected: Tensor


@dataclass(frozen=True)
class Finding:
    """One mistake, or a difference that has no name. A warning is about what goes wrong elsewhere, such as in fp16."""

    name: str  # "" where no known mistake explains it
    says: str
    why: str = ""
    fix: str = ""
    step: str = ""
    line: int = 0
    code: str = ""  # the text of that line
    example: Example | None = None
    is_warning: bool = False
    cell: int = 0  # of a notebook: the line is one of this cell

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"cell {self.cell}, line {self.line}" if self.cell else f"line {self.line}"

    def found(self, says: str, line: int = 0, **changes: Any) -> Finding:
        """A known mistake in a learner's layer; changes: other fields."""
        return replace(self, says=says, line=line, **changes)


KNOWN: list[Finding] = []  # every one that `known` made


def known(name: str, why: str = "", fix: str = "", step: str = "", is_warning: bool = False) -> Finding:
    """A mistake that is not simulated but tried, raised or read. All are listed; a name may stand for several."""
    KNOWN.append(Finding(name, "", why, fix, step, is_warning=is_warning))
    return KNOWN[-1]


def simulated(mistake: Mistake, case: Case, line: int = 0, example: Example | None = None) -> Finding:
    """The finding on a mistake that gives the same numbers as the learner's layer."""
    return Finding(mistake.name, mistake.describe(case), mistake.why, mistake.fix, mistake.shows, line, example=example)


def with_code(findings: Iterable[Finding], source: str) -> list[Finding]:
    """The findings, each with the text of its line, and with its cell where the text is a notebook's."""
    lines = source.splitlines()

    def placed(one: Finding) -> Finding:
        if one.code or not 0 < one.line <= len(lines):
            return one
        cell, line = cell_and_line(source, one.line)
        return replace(one, code=lines[one.line - 1].strip(), line=line, cell=cell, says=with_cells(one.says, source))

    return [placed(one) for one in findings]


@dataclass
class Verdict:
    """What was checked and what was found."""

    name: str  # of the learner's class or function
    task: str  # what it was compared with
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    file: str = ""
    problem: str = ""  # why it could not be checked
    shows_fix: bool = False
    sizes: dict[str, Any] = field(default_factory=dict)  # what it was built with
    checked: list[str] = field(default_factory=list)  # what was tried: values, batches, gradients …
    not_checked: list[str] = field(default_factory=list)  # what it offers and could not be tried, with the reason

    @property
    def mistakes(self) -> list[Finding]:
        """What is wrong."""
        return [one for one in self.findings if not one.is_warning]

    @property
    def warnings(self) -> list[Finding]:
        """What is right here and goes wrong elsewhere."""
        return [one for one in self.findings if one.is_warning]

    @property
    def status(self) -> str:
        """One word: right, wrong or unchecked."""
        return "unchecked" if self.problem else "wrong" if self.mistakes else "right"

    @property
    def is_right(self) -> bool:
        """Was it checked, and nothing wrong found?"""
        return self.status == "right"

    def as_json(self) -> dict[str, Any]:
        """Everything, in plain values."""
        result = {"status": self.status, **asdict(self)}
        del result["shows_fix"]
        for one in result["findings"]:
            one["kind"] = "warning" if one.pop("is_warning") else "mistake"
            for name, is_shown in {"fix": self.shows_fix, "cell": one["cell"]}.items():
                one.pop("" if is_shown else name, None)
            if one["example"] is not None:
                one["example"] = {n: _plain(v) for n, v in one["example"].items()}
        return result

    def __repr__(self) -> str:
        return as_text(self)


def _plain(value: Any) -> Any:
    """A tensor as lists; what is not finite has no place in JSON, and becomes null."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
