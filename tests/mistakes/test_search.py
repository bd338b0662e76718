"""Separability: at the sizes of a check, no two different mistakes, and no two pairs, give the same output."""

from itertools import combinations, islice

import pytest
import torch

from mistakes.cases import random_case
from regard.mistakes.formula import Formula
from regard.mistakes.search import FINITE, MISTAKES, compatible, explanations, outputs, same, variants

MASK = torch.ones(5, 5, dtype=torch.bool).tril()
CASES = {
    "causal": random_case(),
    "square": random_case(d_in=21),
    "bidirectional": random_case(causal=False),
    "one head": random_case(H=1),
    "grouped": random_case(H=6, Hkv=3),
    "mask passed": random_case(causal=False, mask=MASK),
}


def names(variant):
    return " + ".join(sorted(one.name for one in variant))


@pytest.mark.parametrize("kind", CASES)
def test_variants_with_different_names_are_at_least_one_percent_apart(kind):
    """Infinities are large numbers here, as in the run that a check makes where an output has NaN.

    The only coincidence is of one name: "wrong sign of infinity" with +∞ and with +1e9 is then the same.
    """
    case = CASES[kind]
    found = [
        (names(variant), out)
        for size in range(3)
        for variant in variants(case, size)
        for out in islice(outputs(case, variant, FINITE[:1]), 1)
    ]
    assert len(found) > 150
    by_shape = {}
    for name, out in found:
        by_shape.setdefault(out.shape, []).append((name, out))
    for group in by_shape.values():
        stacked = torch.stack([out.flatten() for _, out in group])
        for i, (name, out) in enumerate(group):
            distances = (stacked[:i] - stacked[i]).abs().amax(-1) / out.abs().max()
            near = {group[j][0] for j in (distances < 0.01).nonzero().flatten().tolist()}
            assert near <= {name}, name


@pytest.mark.parametrize("kind", CASES)
def test_every_single_mistake_explains_its_own_output(kind):
    case = CASES[kind]
    for (one,) in variants(case, 1):
        out = next(outputs(case, (one,)), None)
        if out is not None and not out.isnan().all():
            assert one.name in [variant[0].name for variant in explanations(case, out)]


def test_a_right_output_has_no_mistakes_and_another_no_explanation():
    case = CASES["causal"]
    assert explanations(case, Formula()(case)) == [()]
    assert explanations(case, torch.randn(2, 5, 21, dtype=torch.float64)) is None


def test_a_pair_is_explained_by_both():
    case = CASES["causal"]
    pair = next(v for v in variants(case, 2) if names(v) == "mask off by one: one future token seen + no scale")
    assert [names(one) for one in explanations(case, next(outputs(case, pair)))] == [names(pair)]


def test_how_a_mask_hides_means_nothing_without_a_mask():
    without = next(one for one in MISTAKES if one.name == "no causal mask")
    after = next(one for one in MISTAKES if one.name == "mask after softmax without renormalising")
    assert not compatible(without, after)
    assert all(a.step != b.step for a, b in combinations(MISTAKES, 2) if compatible(a, b))


def test_nan_is_the_same_only_in_the_same_places():
    a = torch.tensor([1.0, torch.nan, 3.0])
    assert same(a, a + 1e-9)
    assert not same(a, torch.tensor([1.0, 2.0, 3.0]))
    assert not same(a, torch.tensor([[1.0, torch.nan, 3.0]]))
