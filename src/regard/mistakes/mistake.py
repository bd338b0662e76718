"""A mistake: one step of the formula exchanged for what people write instead, and the words for it."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from regard.mistakes.formula import RIGHT, Case, Formula


def with_heads(case: Case) -> bool:
    """The mistake needs several heads."""
    return case.num_heads > 1


def with_mask(case: Case) -> bool:
    """The mistake needs a layer that should hide something."""
    return case.causal or case.mask is not None


@dataclass(frozen=True)
class Mistake:
    """One wrong step.

    step is the step of `Formula` that it replaces, also are others, and shows is the step of a trace where it is first
    seen. The sentences of `says` may use {head_dim}, {num_heads}, {width}, {d_in}, {T} and {factor}.
    """

    name: str  # short, as in a class summary: "scale by √d_model"
    step: str
    act: Callable[..., Any]
    shows: str
    says: str  # what the layer does, and what it should do
    why: str  # why that is wrong, for a person who meets it for the first time
    fix: str  # the right line of code
    applies: Callable[[Case], bool] = lambda case: True
    rare: bool = False  # tried alone only, not in pairs
    family: str = ""  # the name of all mistakes of its kind, where they differ in details only
    hides: bool = False  # is about how hidden scores are written: means nothing in a layer without a mask
    also: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # other steps that it replaces
    written: str = ""  # a pattern of the code: the mistake is not tried where it is not there
    announced: str = ""  # a pattern: where names or comments say this, it is meant, and no mistake

    @property
    def acts(self) -> dict[str, Callable[..., Any]]:
        """Every step that it replaces."""
        return {self.step: self.act, **self.also}

    def describe(self, case: Case) -> str:
        """What it does, with the numbers of this layer."""
        factor = "" if case.factor is None else number_text(case.factor)
        sizes = {"head_dim": case.head_dim, "num_heads": case.num_heads, "width": case.width, "factor": factor}
        return self.says.format(**sizes, T=case.x.shape[1], d_in=case.x.shape[2])


def formula_with(mistakes: Iterable[Mistake], base: Formula = RIGHT[0]) -> Formula:
    """The formula with these mistakes in it."""
    return replace(base, **{step: act for one in mistakes for step, act in one.acts.items()})


def written_in(source: str, mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
    """The mistakes that code with this text can make; all of them where there is no text."""
    return tuple(one for one in mistakes if not source or not one.written or _is_written(one.written, source))


@lru_cache(maxsize=1024)
def _is_written(pattern: str, source: str) -> bool:
    return re.search(pattern, source) is not None


def number_text(factor: float) -> str:
    """What scores are multiplied by, as people write it: divided by 8, multiplied by 3.

    >>> number_text(0.125), number_text(3.0), number_text(11**-0.5)
    ('divided by 8', 'multiplied by 3', 'divided by √11')
    """
    word, value = ("divided by", 1 / factor) if abs(factor) < 1 else ("multiplied by", factor)
    for text, candidate in ((f"{value:.6g}", float(f"{value:.0f}")), (f"√{value**2:.0f}", round(value**2) ** 0.5)):
        if abs(value - candidate) < 1e-6 * abs(value):
            return f"{word} {text}"
    return f"{word} {value:.4g}"
