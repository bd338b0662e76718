"""Meanings: what a step is in the formula of attention, whatever its author calls it.

The operation says it: a product before a softmax makes scores, the softmax makes weights, a product after it makes the
context. Between scores and weights, a mask and a scale may come in any order, or together with the product in one step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.traces.torch_calls import Step, ancestors

BEFORE_SOFTMAX = ("scores", "mask", "scaled")
MATRICES = {*BEFORE_SOFTMAX, "bias", "weights", "dropout"}  # queries × keys

_OF_CALLS = {name: name for name in (*MATRICES, "context")} | {"scaled_dot_product_attention": "context"}
_PRODUCT = re.compile(r" @ |\b(matmul|bmm|mm|einsum|baddbmm)\(")
_SCALED_LAST = re.compile(r"[/×] [√(]*[\d.e−+]+\)*$")
_KINDS = {"scores": _PRODUCT, "scaled": re.compile(r"[/×] [√(]*\d|\b(div|mul)\(")}
_KINDS |= {"mask": re.compile(r"\b(masked_fill|where|setitem)\(|−∞")}


@dataclass(frozen=True)
class Meaning:
    """What a step is, and which of scores, mask and scaled went into it."""

    name: str  # scores, mask, scaled, weights, context; else the step's own name, or "" where that means nothing
    contains: frozenset[str] = frozenset()  # with the steps before it
    own: frozenset[str] = frozenset()  # in this step alone


def meanings(steps: Sequence[Step], named: bool) -> list[Meaning]:
    """The meaning of each step; `named` if their names were given by the code, not by the torch functions."""
    result: list[Meaning] = []
    softmaxed = _softmaxed(steps)
    for i, step in enumerate(steps):
        earlier = ancestors(steps, i)
        contains = frozenset[str]().union(*(result[j].contains for j in step.inputs if j >= 0))
        base = re.sub(r" \d+$", "", step.name)
        found = {kind for kind, pattern in _KINDS.items() if pattern.search(step.operation)}
        own = frozenset(found if named else {base} & set(BEFORE_SOFTMAX))
        if step.operation.startswith("scaled_dot_product_attention("):
            own = frozenset(MATRICES)  # all in one call
        if i in softmaxed and not contains:
            own |= {"scores"}
        after_softmax = any(result[j].name == "weights" for j in earlier)
        in_formula = "scores" in own or any("scores" in result[j].contains for j in earlier)
        name = _name(base, step.operation, own, in_formula, after_softmax) if named else _OF_CALLS.get(base, "")
        before_softmax = name in (*BEFORE_SOFTMAX, "bias") and not after_softmax
        result.append(Meaning(name, contains | own if before_softmax else frozenset(), own))
    return result


def _softmaxed(steps: Sequence[Step]) -> set[int]:
    """The steps that a softmax was made from, back to the product."""
    found: set[int] = set()
    for weights in (step for step in steps if step.operation.startswith("softmax(")):
        waiting = [weights]
        while waiting:
            step = waiting.pop()
            new = {j for j in step.inputs if j >= 0 and steps[j].shape == weights.shape} - found
            found |= new
            waiting += [steps[j] for j in new if not _PRODUCT.search(steps[j].operation)]
    return found


def _name(base: str, operation: str, own: frozenset[str], in_formula: bool, after_softmax: bool) -> str:
    if operation.startswith("softmax("):
        return "weights"
    if own == MATRICES:
        return base
    if "scores" in own and (after_softmax or "softmax(" in operation):
        return "context"
    if in_formula and "scaled" in own and _SCALED_LAST.search(operation):
        return "scaled"
    if in_formula and "mask" in own:
        return "mask"
    return "scores" if "scores" in own else base
