"""How a report knows what it says of a layer: from the call, from its mask, by assumption, or not at all.

Five things are learned of every attention call: that these are attention weights, which axis holds the heads, where
each query stands among the keys, which queries are padding, and which tokens these are. What is assumed is marked
wherever the layer is shown. What is unknown has no statistics: they are NaN, and the reason is said.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, NamedTuple


class How(Enum):
    """How something was learned."""

    CALL = "from the call"  # the arguments of the function, of the modules around it, or of watch()
    MASK = "from the mask"
    ASSUMED = "assumed"
    UNKNOWN = "unknown"


class Fact(NamedTuple):
    """How one thing was learned, and what is assumed, or why it is unknown."""

    how: How = How.CALL
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.how.value}: {self.reason}" if self.reason else self.how.value


FROM_CALL, FROM_MASK = Fact(), Fact(How.MASK)


def assumed(reason: str) -> Fact:
    """Something that is taken to be so; the reason says what."""
    return Fact(How.ASSUMED, reason)


def unknown(reason: str) -> Fact:
    """Something that nothing tells."""
    return Fact(How.UNKNOWN, reason)


NO_TOKENS = unknown("no token ids are known")


@dataclass(frozen=True)
class Basis:
    """How each thing about a layer was learned.

    >>> Basis(positions=unknown("5 queries for 15 keys")).marks
    ('positions unknown: 5 queries for 15 keys',)
    """

    weights: Fact = FROM_CALL
    heads: Fact = FROM_CALL
    positions: Fact = FROM_CALL
    padding: Fact = FROM_CALL
    tokens: Fact = NO_TOKENS

    @property
    def marks(self) -> tuple[str, ...]:
        """What a reader must know: everything that is assumed, and what is unknown. Most models have no marks.

        Unknown token ids are no mark: the statistics that need them are not there.
        """
        shown = [
            (field.name, getattr(self, field.name))
            for field in fields(self)
            if field.name != "tokens" or self.tokens.how is How.ASSUMED
        ]
        said = [f"{name} {fact}" for name, fact in shown if fact.how in (How.ASSUMED, How.UNKNOWN)]
        return (*said, *(f"{name}: {fact.reason}" for name, fact in shown if fact.how is How.CALL and fact.reason))

    def plain(self) -> dict[str, list[str]]:
        """As plain values, for a file; what is certain is left out."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: [fact.how.name, fact.reason] for name, fact in facts.items() if fact != FROM_CALL}

    @classmethod
    def of_plain(cls, plain: Any) -> Basis:
        """From what plain() gave; ValueError where it is something else."""
        names = {field.name for field in fields(cls)}
        if not isinstance(plain, dict) or not plain.keys() <= names:
            raise ValueError(f"basis is {plain!r}")
        facts = dict.fromkeys(names, FROM_CALL)
        for name, (how, reason) in plain.items():
            if how not in How.__members__ or not isinstance(reason, str):
                raise ValueError(f"basis of {name} is {how!r}, {reason!r}")
            facts[name] = Fact(How[how], reason)
        return cls(**facts)

    def __str__(self) -> str:
        return "\n".join(f"{field.name}: {getattr(self, field.name)}" for field in fields(self))


USUAL = Basis()  # all is known, but for tokens
