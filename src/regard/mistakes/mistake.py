"""A mistake: one step of the formula exchanged for what people write instead, and the words for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.mistakes.formula import Given


def always(given: Given) -> bool:
    """The mistake can be made in every layer."""
    return True


def with_heads(given: Given) -> bool:
    """The mistake needs several heads."""
    return given.num_heads > 1


def with_mask(given: Given) -> bool:
    """The mistake needs a layer that should hide the future."""
    return given.causal


@dataclass(frozen=True)
class Mistake:
    """One wrong step.

    step is the step of `Formula` that it replaces, and shows the step of a trace where it is first seen. The sentences
    of `says` may use {head_dim}, {num_heads}, {width}, {d_in} and {T}.
    """

    name: str  # short, as in a class summary: "scale by √d_model"
    step: str
    act: Callable[..., Any]
    shows: str
    says: str  # what the layer does, and what it should do
    why: str  # why that is wrong, for a person who meets it for the first time
    fix: str  # the right line of code
    applies: Callable[[Given], bool] = always
    rare: bool = False  # tried alone only, not in pairs

    def told(self, given: Given) -> str:
        """What it does, with the numbers of this layer."""
        _, T, d_in = given.x.shape
        return self.says.format(
            head_dim=given.head_dim, num_heads=given.num_heads, width=given.width, d_in=d_in, T=T
        )
