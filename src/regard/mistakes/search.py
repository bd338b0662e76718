"""Which mistakes explain an output: every mistake and every pair of them is simulated, and compared with it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import torch
from torch import Tensor

from regard.mistakes import activating, masking, merging, projecting, scaling, splitting, weighing
from regard.mistakes.formula import RIGHT, Case, Formula, Known, hide, normalise
from regard.mistakes.mistake import Mistake, formula_with

MISTAKES: tuple[Mistake, ...] = (
    *projecting.MISTAKES,
    *splitting.MISTAKES,
    *scaling.MISTAKES,
    *masking.MISTAKES,
    *weighing.MISTAKES,
    *activating.MISTAKES,
    *merging.MISTAKES,
)
TOLERANCE = 1e-5  # of the largest number: code may compute something in float32, such as torch.sqrt(torch.tensor(8.0))
LARGEST = 2  # mistakes in one explanation
WITHOUT_MASK = ("no causal mask", "mask argument ignored")
FILLINGS = ("-inf", "large", "zero", "added")
FINITE = ("large", "added")  # of a layer in which infinities were replaced by large numbers

Variant = tuple[Mistake, ...]


def explanations(
    case: Case, out: Tensor, tolerance: float = TOLERANCE, mistakes: Sequence[Mistake] = MISTAKES
) -> list[Variant] | None:
    """The smallest sets of mistakes that give this output; [()] where it is right, None where no set gives it.

    Several are returned where they are the same function on this input.
    """
    for size in range(LARGEST + 1):
        matches = explanations_of_size(case, [out], size, tolerance, mistakes)
        if matches:
            return [variant for _, variant in matches]
    return None


def explanations_of_size(
    case: Case,
    outs: Sequence[Tensor],
    size: int,
    tolerance: float,
    mistakes: Sequence[Mistake] = MISTAKES,
    having: str = "",
) -> list[tuple[int, Variant]]:
    """All sets of so many mistakes that give one of these outputs, each with the number of that output.

    having: only sets with a mistake of this name.
    """
    known: dict[str, Known] = {}
    samples = [_sample(out) for out in outs]
    result = []
    for variant in variants(case, size, mistakes):
        if having and not any(one.name == having for one in variant):
            continue
        simulated = list(outputs(case, variant, known=known))
        for i, out in enumerate(outs):
            if any(_may_be_same(_sample(one), samples[i]) and same(one, out, tolerance) for one in simulated):
                result.append((i, variant))
    return result


def _sample(t: Tensor) -> list[float]:
    """Three numbers of a tensor: most that differ, differ there already."""
    flat = t.reshape(-1)
    return [float(flat[i]) for i in (0, len(flat) // 2, -1)] if len(flat) else []


def _may_be_same(a: list[float], b: list[float]) -> bool:
    return all(not abs(x - y) > 0.01 * (abs(x) + abs(y)) + 0.01 for x, y in zip(a, b, strict=False))


def variants(case: Case, size: int, mistakes: Sequence[Mistake] = MISTAKES) -> list[Variant]:
    """The sets of so many mistakes that can be made together in this layer."""
    possible = [one for one in mistakes if one.applies(case)]
    if size < LARGEST:
        return list(combinations(possible, size))
    return [pair for pair in combinations([one for one in possible if not one.rare], size) if compatible(*pair)]


def compatible(a: Mistake, b: Mistake) -> bool:
    """Can both be made in one layer, and seen? How a mask hides means nothing where there is none."""
    if a.acts.keys() & b.acts.keys():
        return False
    return not (a.name in WITHOUT_MASK and b.hides) and not (b.name in WITHOUT_MASK and a.hides)


def outputs(
    case: Case, variant: Variant, fillings: Sequence[str] = FILLINGS, known: dict[str, Known] | None = None
) -> Iterator[Tensor]:
    """What a layer with these mistakes gives, for each right way to write the rest; nothing where shapes do not fit.

    known: steps of other variants of this case, by filling.
    """
    known = {} if known is None else known
    changed = {step for one in variant for step in one.acts}
    is_either = case.num_heads > 1 and not {"split", "merge"} & changed and len(variant) < LARGEST
    for base in RIGHT if is_either else RIGHT[:1]:
        formula = formula_with(variant, base)
        for filling in _fillings(case, formula, fillings):
            try:
                written = case if filling == case.filling else replace(case, filling=filling)
                yield formula(written, known.setdefault(filling, {}))
            except (RuntimeError, ValueError):  # these weights have no place in this variant
                break


def _fillings(case: Case, formula: Formula, fillings: Sequence[str]) -> Sequence[str]:
    """How hidden scores may be written; it shows where a row, or another axis of the softmax, has nothing to see."""
    visible = formula.see(case)
    alike = bool(visible.any(-1).all()) and formula.hide is hide and formula.normalise is normalise
    if alike or bool(visible.all()):
        return fillings[:1]
    has_zeros = formula.hide is hide and not bool(visible.any(-1).all())
    return fillings if has_zeros else [one for one in fillings if one != "zero"]


def same(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Are they the same numbers, also where they are not finite?"""
    if a.shape != b.shape or not torch.equal(a.isnan(), b.isnan()):
        return False
    a, b = a.nan_to_num(0.0), b.nan_to_num(0.0)
    return bool(((a - b).abs() <= tolerance * b.abs().amax().clamp(min=1e-30)).all()) if b.numel() else True
