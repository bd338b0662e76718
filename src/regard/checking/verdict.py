"""The verdict on a layer: right, or the mistakes that were found, each with what was seen and where."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Numbers:
    """A step on a small example: what the learner's code made, and what is right. Both (rows, columns)."""

    step: str
    seen: Tensor
    expected: Tensor
    about: str = ""  # what the rows and columns are


@dataclass(frozen=True)
class Found:
    """One mistake, or a difference that has no name."""

    name: str  # "" where it is unknown
    says: str
    why: str = ""
    fix: str = ""
    step: str = ""
    line: int = 0
    numbers: Numbers | None = None


@dataclass
class Verdict:
    """What was checked and what was found."""

    name: str  # of the learner's class or function
    task: str  # what it was compared with
    mistakes: list[Found] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    file: str = ""

    @property
    def right(self) -> bool:
        """Was nothing wrong found?"""
        return not self.mistakes

    def as_json(self) -> dict[str, Any]:
        """Everything, in plain values."""
        result = asdict(self) | {"right": self.right}
        for one in result["mistakes"]:
            if one["numbers"] is not None:
                one["numbers"] = {
                    name: value.tolist() if isinstance(value, Tensor) else value for name, value in one["numbers"].items()
                }
        return result

    def __str__(self) -> str:
        """The verdict in words."""
        if self.right:
            return f"{self.name} is right: {self.task}"
        return "\n".join([f"{self.name}: {self.task}", *(f"  {one.name or 'unknown'}: {one.says}" for one in self.mistakes)])
