"""Examples: numbers that a person can follow, seen and expected, for a mistake or for a difference without a name."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from regard.mistakes.formula import Case
from regard.mistakes.mistake import Mistake
from regard.mistakes.search import Variant, same
from regard.school.check.compare.experiment import Experiment, experiment
from regard.school.check.explain.mistake_lines import steps_of
from regard.school.check.learner_code.subject import is_function
from regard.school.check.verdict import Example

TOKENS = 3
_COLUMNS = 6
# What is shown of a step: its own numbers, or those of the step where they are easier to follow.
_SHOWN = {"mask": "weights", "scaled": "weights", "shared keys": "weights", "split": "split", "scores": "weights"}


def tiny_example(mistake: Mistake, variant: Variant, case: Case) -> Example | None:
    """The step of a mistake for three tokens and one head, with the mistake and without it."""
    few = slice(TOKENS)
    small = replace(
        case,
        x=case.x[:, few],
        mask=None if case.mask is None else case.mask[few, few],
        qkv=case.qkv and tuple(t[:, few] for t in case.qkv),
        bias=None if case.bias is None else case.bias[:, few, few],
    )
    wrong, right = steps_of(small, variant), steps_of(small, tuple(one for one in variant if one is not mistake))
    name = _SHOWN.get(mistake.shows, mistake.shows)
    if name not in wrong or name not in right:
        return None
    seen, expected = _first(wrong[name]), _first(right[name])
    if name == "weights" and same(seen, expected) and "out" in wrong and "out" in right:
        seen, expected, name = _first(wrong["out"]), _first(right["out"]), "out"
    heads = f", head 0 of {case.num_heads}" if wrong[name].dim() == 4 and case.num_heads > 1 else ""
    return Example(f"{name} for {TOKENS} tokens{heads}", seen[:, :_COLUMNS], expected[:, :_COLUMNS])


def _first(t: Tensor) -> Tensor:
    return t.flatten(0, -3)[0] if t.dim() > 2 else t


def counterexample(result: Experiment) -> Example | None:
    """The output for the fewest texts, tokens and heads with which the difference still shows."""
    if is_function(result.subject):
        return None
    smallest = _smallest(result)
    s, heads = smallest.sizes, smallest.case.num_heads
    expected = steps_of(smallest.case, ()).get("out")
    if expected is None or expected.shape[:2] != smallest.out.shape[:2]:
        return None
    texts = f"{s.B} text{'s' * (s.B != 1)}, {s.T} token{'s' * (s.T != 1)}, {heads} head{'s' * (heads != 1)}"
    seen, right = smallest.out[0].to(torch.float64), expected[0]
    return Example(f"out for {texts}", seen[:, :_COLUMNS], right[:, :_COLUMNS])


def _smallest(result: Experiment) -> Experiment:
    """The experiment at the smallest sizes at which nothing explains it either."""
    changes: list[dict[str, int]] = [{"B": 1}, {"T": 1}, {"T": 2}, {"T": 3}]
    changes += [] if result.subject.is_built else [{"num_heads": 1}, {"head_dim": 2}]
    smallest = result
    for change in changes:
        sizes = replace(smallest.sizes, **change)
        if sizes == smallest.sizes or sizes.T > smallest.sizes.T:
            continue
        try:
            smaller = experiment(result.subject, sizes, 0, result.request, masked=bool(result.call.mask), most=1)
        except ValueError:
            continue
        if isinstance(smaller, Experiment) and not smaller.is_explained:
            smallest = smaller
    return smallest
