"""Meanings: what a step is in the formula of attention, whatever its author calls it.

The operation says it: a product before a softmax makes scores, the softmax makes weights, a product after it makes the
context. Between scores and weights, a mask and a scale may come in any order, or together with the product in one step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from regard.traces.lineage import ancestors

BEFORE_SOFTMAX = ("scores", "mask", "scaled")
MATRICES = {*BEFORE_SOFTMAX, "bias", "weights", "dropout"}  # queries × keys

_PRODUCT = re.compile(r" @ |\b(matmul|bmm|mm|einsum|baddbmm)\(")
_SCALE = re.compile(r"[/×] [√(]*\d|\b(div|mul)\(")
_SCALED_LAST = re.compile(r"[/×] [√(]*[\d.e−+]+\)*$")
_MASK = re.compile(r"\b(masked_fill|where|setitem)\(|−∞")


class HasOperation(Protocol):
    """A step, as far as its meaning needs it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def operation(self) -> str:
        """What made it."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """The numbers of the steps that it was made from."""


@dataclass(frozen=True)
class Meaning:
    """What a step is, and which of scores, mask and scaled went into it."""

    name: str  # scores, mask, scaled, weights, context; else the step's own name, or "" where that means nothing
    contains: frozenset[str] = frozenset()  # with the steps before it
    own: frozenset[str] = frozenset()  # in this step alone


def meanings(steps: Sequence[HasOperation], named: bool) -> list[Meaning]:
    """The meaning of each step; `named` if their names were given by the code, not by the torch functions."""
    result: list[Meaning] = []
    for i, step in enumerate(steps):
        before = [result[j] for j in ancestors(steps, i)]
        base = re.sub(r" \d+$", "", step.name)
        own = _own(step.operation) if named else frozenset({base} & set(BEFORE_SOFTMAX))
        has_weights = any(one.name == "weights" for one in before)
        name = _name(base, step.operation, own, before, has_weights) if named else _name_of_call(base)
        earlier = frozenset[str]().union(*(result[j].contains for j in step.inputs if j >= 0))
        contains = (earlier | own) if name in BEFORE_SOFTMAX or name == "bias" else frozenset[str]()
        result.append(Meaning(name, contains, own))
    return result


def _name_of_call(base: str) -> str:
    return base if base in {*MATRICES, "context"} else ""


def _name(base: str, operation: str, own: frozenset[str], before: Sequence[Meaning], has_weights: bool) -> str:
    in_formula = any(one.name == "scores" or "scores" in one.contains for one in before) or "scores" in own
    if operation.startswith("softmax("):
        return "weights"
    if "scores" in own and (has_weights or "softmax(" in operation):
        return "context"
    if in_formula and "scaled" in own and _SCALED_LAST.search(operation):
        return "scaled"
    if in_formula and "mask" in own:
        return "mask"
    return "scores" if "scores" in own else base


def _own(operation: str) -> frozenset[str]:
    kinds = (("scores", _PRODUCT), ("scaled", _SCALE), ("mask", _MASK))
    return frozenset(name for name, pattern in kinds if pattern.search(operation))
